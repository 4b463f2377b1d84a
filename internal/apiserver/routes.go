package apiserver

import (
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// table returns all operations.
func (s *Server) table() []route {
	var all []route
	for _, part := range [][]route{
		s.generalRoutes(), s.clusterRoutes(), s.definitionRoutes(), s.diffRoutes(), s.serviceRoutes(),
		s.rolloutRoutes(), s.scaleRoutes(), s.jobRoutes(),
		s.cronRoutes(), s.explainRoutes(), s.rebalanceRoutes(), s.simulateRoutes(), s.rebalancingRoutes(),
		s.reservationRoutes(),
		s.taskRoutes(), s.checkRoutes(), s.terminalRoutes(), s.nodeRoutes(), s.nodeVerbs(), s.operatorRoutes(),
		s.eventRoutes(), s.imageRoutes(), s.volumeRoutes(), s.accessRoutes(),
		s.secretRoutes(),
	} {
		all = append(all, part...)
	}
	return all
}

func (s *Server) generalRoutes() []route {
	return []route{
		{
			method: "GET", path: "/livez", name: "live", summary: "Whether the process is up.", open: true,
			stream: "text/plain", serve: s.live,
		},
		{
			method: "GET", path: "/readyz", name: "ready", summary: "Whether the server can do its work, part by part.",
			open: true, reply: typeOf[api.Readiness](), serve: s.ready,
		},
		{
			method: "GET", path: "/openapi.json", name: "openapi", role: viewer, shared: true,
			summary: "This description.", stream: "application/json", serve: s.openapiJSON,
		},
		{
			method: "GET", path: "/openapi.yaml", name: "openapiYaml", role: viewer, shared: true,
			summary: "This description, as YAML.", stream: "application/yaml", serve: s.openapiYAML,
		},
		{
			method: "GET", path: "/v1/manifest.schema.json", name: "manifestSchema", role: viewer, shared: true,
			summary: "The JSON Schema of a document of a manifest.", stream: "application/schema+json",
			serve: s.manifestSchema,
		},
		{
			method: "GET", path: "/v1/version", name: "version", role: viewer, shared: true,
			summary: "The build of the server.", reply: typeOf[api.Version](), serve: s.version,
		},
		{
			method: "POST", path: "/v1/apply", name: "apply", role: submitter, shared: true,
			summary: "Writes a set of objects, all or none, or tells what that would change.",
			body:    typeOf[api.ApplyRequest](), reply: typeOf[api.ApplyReply](), serve: s.apply,
		},
	}
}

func (s *Server) clusterRoutes() []route {
	return []route{
		{
			method: "GET", path: "/v1/clusters", name: "listClusters", role: viewer, shared: true,
			summary: "All clusters.", query: listParameters(), reply: typeOf[api.Page[api.ClusterView]](),
			stream: eventStream, long: true, serve: s.listClusters,
		},
		{
			method: "GET", path: "/v1/clusters/{cluster}", name: "readCluster", role: viewer, summary: "One cluster.",
			query: []parameter{consistent()}, reply: typeOf[api.ClusterView](), serve: s.readCluster,
		},
		{
			method: "PUT", path: "/v1/clusters/{cluster}", name: "writeCluster", role: operator,
			summary: "Makes or changes a cluster.", writes: true, body: typeOf[cluster.Cluster](),
			reply: typeOf[api.ClusterView](), serve: s.writeCluster,
		},
		{
			method: "DELETE", path: "/v1/clusters/{cluster}", name: "deleteCluster", role: operator,
			summary: "Deletes a cluster that has neither services, jobs nor crons.", writes: true,
			status: http.StatusNoContent, serve: s.deleteCluster,
		},
	}
}

func (s *Server) definitionRoutes() []route {
	return []route{
		{
			method: "GET", path: "/v1/definitions", name: "listDefinitions", role: viewer, shared: true,
			summary: "All versions of all task definitions.", query: listParameters(reveal()),
			reply: typeOf[api.Page[api.DefinitionView]](), stream: eventStream, long: true,
			serve: s.listDefinitions,
		},
		{
			method: "GET", path: "/v1/definitions/{definition}", name: "listVersions", role: viewer, shared: true,
			summary: "All versions of a task definition.", query: listParameters(reveal()),
			reply: typeOf[api.Page[api.DefinitionView]](), stream: eventStream, long: true,
			serve: s.listDefinitions,
		},
		{
			method: "GET", path: "/v1/definitions/{definition}/{version}", name: "readDefinition", role: viewer,
			shared: true, summary: "One version of a task definition.", query: []parameter{reveal(), consistent()},
			reply: typeOf[api.DefinitionView](), serve: s.readDefinition,
		},
		{
			method: "PUT", path: "/v1/definitions/{definition}/{version}", name: "writeDefinition", role: submitter,
			shared: true, summary: "Writes a version, once. The same content again changes nothing, another " +
				"content is refused with 409.", writes: true, body: typeOf[cluster.TaskDefinition](),
			reply: typeOf[api.DefinitionView](), serve: s.writeDefinition,
		},
		{
			method: "DELETE", path: "/v1/definitions/{definition}/{version}", name: "deleteDefinition", role: submitter,
			shared: true, summary: "Deletes a version that nothing uses.", writes: true, status: http.StatusNoContent,
			serve: s.deleteDefinition,
		},
	}
}

func (s *Server) serviceRoutes() []route {
	const list, one = "/v1/clusters/{cluster}/services", "/v1/clusters/{cluster}/services/{service}"
	page, view := typeOf[api.Page[api.ServiceView]](), typeOf[api.ServiceView]()
	return []route{
		{
			method: "GET", path: "/v1/services", name: "listAllServices", role: viewer, shared: true,
			summary: "The services of all clusters.", query: listParameters(), reply: page, stream: eventStream,
			long: true, serve: s.services().list,
		},
		{
			method: "GET", path: list, name: "listServices", role: viewer, summary: "The services of a cluster.",
			query: listParameters(), reply: page, stream: eventStream, long: true, serve: s.services().list,
		},
		{
			method: "GET", path: one, name: "readService", role: viewer, summary: "One service with its status.",
			query: []parameter{consistent()}, reply: view, serve: s.services().read,
		},
		{
			method: "PUT", path: one, name: "writeService", role: submitter, summary: "Makes or changes a service.",
			writes: true, body: typeOf[cluster.Service](), reply: view, serve: s.services().write,
		},
		{
			method: "DELETE", path: one, name: "deleteService", role: submitter,
			summary: "Deletes a service: its tasks are stopped, then it is gone.", writes: true,
			status: http.StatusAccepted, reply: view, serve: s.services().delete,
		},
		{
			method: "GET", path: one + "/addresses", name: "listAddresses", role: viewer,
			summary: "Where the healthy tasks of a service are reached, without those that are to be stopped.",
			query:   listParameters(), reply: typeOf[api.Page[api.Address]](), stream: eventStream, long: true,
			serve: s.listAddresses,
		},
		{
			method: "POST", path: one + "/stop", name: "stopService", role: submitter,
			summary: "Stops all tasks and keeps the service.", writes: true, reply: view, serve: s.stopService,
		},
		{
			method: "POST", path: one + "/start", name: "startService", role: submitter,
			summary: "Starts a stopped service.", writes: true, reply: view, serve: s.startService,
		},
		{
			method: "POST", path: one + "/restart", name: "restartService", role: submitter,
			summary: "Replaces all tasks, as a rollout does.", writes: true, reply: view, serve: s.restartService,
		},
	}
}

func (s *Server) jobRoutes() []route {
	const list, one = "/v1/clusters/{cluster}/jobs", "/v1/clusters/{cluster}/jobs/{job}"
	page, view := typeOf[api.Page[api.JobView]](), typeOf[api.JobView]()
	return []route{
		{
			method: "GET", path: "/v1/jobs", name: "listAllJobs", role: viewer, shared: true,
			summary: "The jobs of all clusters.", query: listParameters(), reply: page, stream: eventStream, long: true,
			serve: s.jobs().list,
		},
		{
			method: "GET", path: list, name: "listJobs", role: viewer, summary: "The jobs of a cluster.",
			query: listParameters(), reply: page, stream: eventStream, long: true, serve: s.jobs().list,
		},
		{
			method: "GET", path: one, name: "readJob", role: viewer, summary: "One job with its status.",
			query: []parameter{consistent()}, reply: view, serve: s.jobs().read,
		},
		{
			method: "PUT", path: one, name: "writeJob", role: submitter,
			summary: "Makes or changes a job; other steps run it anew.", writes: true, body: typeOf[cluster.Job](),
			reply: view, serve: s.jobs().write,
		},
		{
			method: "DELETE", path: one, name: "deleteJob", role: submitter,
			summary: "Deletes a job: its tasks are stopped, then it is gone.", writes: true,
			status: http.StatusAccepted, reply: view, serve: s.jobs().delete,
		},
		{
			method: "POST", path: one +
				"/stop", name: "stopJob", role: submitter, summary: "Cancels a job.", writes: true,
			reply: view, serve: s.stopJob,
		},
		{
			method: "POST", path: one + "/restart", name: "restartJob", role: submitter,
			summary: "Runs a job anew, from its first step.", writes: true, reply: view, serve: s.restartJob,
		},
	}
}

func (s *Server) taskRoutes() []route {
	filters := []parameter{
		{"cluster", "string", "tasks of this cluster"},
		{"service", "string", "tasks of the services of this name"},
		{"job", "string", "tasks of the jobs of this name"},
		{"node", "string", "tasks on this node"},
		{"state", "string", "tasks in this state"},
		{"all", "boolean", "every attempt that is known, also ended ones"},
	}
	attempt := parameter{"attempt", "integer", "the attempt's number; default the newest"}
	container := parameter{"container", "string", "the container's name; default the first essential one, for logs all"}
	return []route{
		{
			method: "GET", path: "/v1/tasks", name: "listTasks", role: viewer, shared: true,
			summary: "Tasks that wait or live, and how the tasks of jobs ended.", query: listParameters(filters...),
			reply: typeOf[api.Page[api.TaskView]](), stream: eventStream, long: true, serve: s.listTasks,
		},
		{
			method: "GET", path: "/v1/tasks/{task}", name: "readTask", role: viewer,
			summary: "The newest attempt of a task.", query: []parameter{attempt, consistent()},
			reply: typeOf[api.TaskView](), serve: s.readTask,
		},
		{
			method: "GET", path: "/v1/tasks/{task}/logs", name: "readLogs", role: submitter,
			summary: "The output of a task: one LogLine as JSON a line.",
			query: []parameter{
				attempt, container,
				{"follow", "boolean", "go on with what the task writes"},
				{"tail", "integer", "begin with this many of the newest lines; default all"},
				{"since", "duration", "leave out lines older than this"},
				{"stream", "string", "stdout or stderr; default both"},
			},
			stream: lines, long: true, serve: s.readLogs,
		},
		{
			method: "GET", path: "/v1/tasks/{task}/exec", name: "exec", role: submitter, audited: true,
			summary: "Runs a command in a container, over a websocket. Each binary message begins with its " +
				"channel: 0 input (alone: its end), 1 output, 2 error output, 3 the end as JSON.",
			query: []parameter{
				attempt, container,
				{"command", "array", "the command and its arguments, one each"},
				{"stdin", "boolean", "the command reads input"},
			},
			status: http.StatusSwitchingProtocols, long: true, serve: s.exec,
		},
	}
}

func (s *Server) nodeRoutes() []route {
	view := typeOf[api.NodeView]()
	return []route{
		{
			method: "GET", path: "/v1/nodes", name: "listNodes", role: viewer, shared: true, summary: "All nodes.",
			query: listParameters(), reply: typeOf[api.Page[api.NodeView]](), stream: eventStream, long: true,
			serve: s.listNodes,
		},
		{
			method: "GET", path: "/v1/nodes/{node}", name: "readNode", role: viewer, shared: true, summary: "One node.",
			query: []parameter{consistent()}, reply: view, serve: s.readNode,
		},
		{
			method: "PUT", path: "/v1/nodes/{node}", name: "writeNode", role: operator,
			summary: "Sets what the operator decides of a node: labels, pool, taints, cordon. A drain goes on.",
			writes:  true, body: typeOf[cluster.Host](), reply: view, serve: s.writeNode,
		},
	}
}

func (s *Server) eventRoutes() []route {
	return []route{{
		method: "GET", path: "/v1/events", name: "listEvents", role: viewer, shared: true,
		summary: "The event log, oldest first. A cursor that is older than what is kept gets 410 with the oldest id.",
		query: append(eventParameters(), []parameter{
			{"after", "string", "the id of the last event seen; \"now\" leaves out what has happened; " +
				"default the oldest that is kept"},
			{"limit", "integer", "the most events to answer with; default 1000"},
			{"wait", "duration", "how long to wait for the first event, at most 5m"},
			consistent(),
		}...),
		reply: typeOf[api.Page[api.EventView]](), stream: eventStream, long: true, serve: s.events.list,
	}}
}

func (s *Server) imageRoutes() []route {
	node := parameter{"node", "string", "the node; default all"}
	return []route{
		{
			method: "GET", path: "/v1/images", name: "listImages", role: viewer, summary: "The images that nodes hold.",
			query: []parameter{node}, reply: typeOf[api.ImagesReply](), long: true, serve: s.listImages,
		},
		{
			method: "POST", path: "/v1/images", name: "loadImages", role: operator,
			summary: "Loads images from a tar archive into a node.", query: []parameter{node},
			upload: "application/x-tar", reply: typeOf[api.ImagesReply](), long: true, serve: s.loadImages,
		},
		{
			method: "POST", path: "/v1/images/pull", name: "pullImages", role: operator,
			summary: "Has nodes pull images from their registries.", body: typeOf[api.ImagePull](),
			reply: typeOf[api.ImagesReply](), long: true, serve: s.pullImages,
		},
		{
			method: "POST", path: "/v1/images/prune", name: "pruneImages", role: operator,
			summary: "Has nodes remove images that nothing uses, or tell which they would.",
			body:    typeOf[api.ImagePrune](), reply: typeOf[api.ImagePruneReply](), long: true, serve: s.pruneImages,
		},
	}
}
