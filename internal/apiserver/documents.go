package apiserver

import (
	"io"
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/openapi"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/version"
)

// documentsAPI serves the descriptions of the API and of manifests, and the version of the server.
type documentsAPI struct {
	spec openapi.Document // set after all routes are known
}

func (a *documentsAPI) openapiJSON(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(a.spec.JSON)
	return err
}

func (a *documentsAPI) openapiYAML(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, err := w.Write(a.spec.YAML())
	return err
}

func (a *documentsAPI) manifestSchema(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/schema+json")
	_, err := io.WriteString(w, manifest.Schema())
	return err
}

func (a *documentsAPI) version(w http.ResponseWriter, _ *http.Request) error {
	v := version.Current()
	return respond.JSON(w, http.StatusOK, api.Version{Version: v.Version, Commit: v.Commit, Date: v.CommitDate})
}

func (a *documentsAPI) routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/openapi.json", Name: "openapi", Role: cluster.RoleViewer, Shared: true,
			Summary: "This description.", Stream: "application/json", Serve: a.openapiJSON,
		},
		{
			Method: "GET", Path: "/openapi.yaml", Name: "openapiYaml", Role: cluster.RoleViewer, Shared: true,
			Summary: "This description, as YAML.", Stream: "application/yaml", Serve: a.openapiYAML,
		},
		{
			Method: "GET", Path: "/v1/manifest.schema.json", Name: "manifestSchema", Role: cluster.RoleViewer,
			Shared:  true,
			Summary: "The JSON Schema of a document of a manifest.", Stream: "application/schema+json",
			Serve: a.manifestSchema,
		},
		{
			Method: "GET", Path: "/v1/version", Name: "version", Role: cluster.RoleViewer, Shared: true,
			Summary: "The build of the server.", Reply: reflect.TypeFor[api.Version](), Serve: a.version,
		},
	}
}
