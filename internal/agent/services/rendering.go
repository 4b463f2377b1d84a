package services

import (
	"fmt"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// renderedContent is the content that a container gets from the services.
type renderedContent struct {
	spec   executor.Spec
	texts  []string // of the container's files, by index; only those in template folders
	env    map[string]string
	lookup lookup
}

// render renders the files and variables of a container.
func (s *Follower) render(d *cluster.Desired, def *cluster.TaskDefinition, i int, l lookup) (renderedContent, error) {
	c := &def.Containers[i]
	m := renderedContent{env: l.variables(c), lookup: l, texts: make([]string, len(c.Files))}
	var err error
	if m.spec, err = s.Specs.Spec(d, def, i, "", m.env); err != nil {
		return m, err
	}
	in := cluster.TemplateInput{Services: l.services, Env: map[string]string{}}
	for _, kv := range m.spec.Env {
		name, value, _ := strings.Cut(kv, "=")
		in.Env[name] = value
	}
	facts := s.Facts()
	in.Node = cluster.TemplateNode{Name: s.Node.Name, Address: facts.Address, Arch: facts.Arch, Labels: facts.Labels}
	parts, _ := d.Task.Parts()
	in.Task = cluster.TemplateTask{ID: string(d.Task), Cluster: d.Owner.Cluster, Index: parts.Index, Count: d.Count}
	if d.Batch() {
		in.Task.Job, in.Task.Step = d.Owner.Name, parts.Step
	} else {
		in.Task.Service = d.Owner.Name
	}
	folders := c.TemplateFolders()
	for n := range c.Files {
		f := &c.Files[n]
		switch {
		case f.InFolder(folders) < 0:
		case !f.Template:
			m.texts[n] = f.Content
		default:
			text, faults := cluster.ParseTemplate(f.Content)
			if faults != nil {
				return m, fmt.Errorf("container %s: file %s: %w", c.Name, f.Path, faults)
			}
			if m.texts[n], err = text.Render(&in); err != nil {
				return m, fmt.Errorf("container %s: file %s: %w", c.Name, f.Path, err)
			}
		}
	}
	return m, nil
}
