package apiserver

import (
	"io"
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/manifest"
	"github.com/berthd/berth/internal/version"
)

// documentsAPI serves the descriptions of the API and of manifests, and the build of the server.
type documentsAPI struct {
	spec document // set once all routes are known
}

func (a *documentsAPI) openapiJSON(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(a.spec.json)
	return err
}

func (a *documentsAPI) openapiYAML(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/yaml")
	_, err := w.Write(a.spec.yaml)
	return err
}

func (a *documentsAPI) manifestSchema(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/schema+json")
	_, err := io.WriteString(w, manifest.Schema())
	return err
}

func (a *documentsAPI) version(w http.ResponseWriter, _ *http.Request) error {
	v := version.Current()
	return answer(w, http.StatusOK, api.Version{Version: v.Version, Commit: v.Commit, Date: v.CommitDate})
}

func (a *documentsAPI) routes() []route {
	return []route{
		{
			method: "GET", path: "/openapi.json", name: "openapi", role: cluster.RoleViewer, shared: true,
			summary: "This description.", stream: "application/json", serve: a.openapiJSON,
		},
		{
			method: "GET", path: "/openapi.yaml", name: "openapiYaml", role: cluster.RoleViewer, shared: true,
			summary: "This description, as YAML.", stream: "application/yaml", serve: a.openapiYAML,
		},
		{
			method: "GET", path: "/v1/manifest.schema.json", name: "manifestSchema", role: cluster.RoleViewer,
			shared:  true,
			summary: "The JSON Schema of a document of a manifest.", stream: "application/schema+json",
			serve: a.manifestSchema,
		},
		{
			method: "GET", path: "/v1/version", name: "version", role: cluster.RoleViewer, shared: true,
			summary: "The build of the server.", reply: reflect.TypeFor[api.Version](), serve: a.version,
		},
	}
}
