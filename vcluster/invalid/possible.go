// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

// possible is how many errors an object can have at most, and how many bytes the lists of allowed values in them can have. Counting
// ends soon after they are not few, because each value adds errors.
type possible struct{ errors, texts int }

func (p *possible) few() bool { return p.errors <= fewErrors && p.texts <= fewTexts }

// addObject adds those of a whole object. Of its metadata, a schema restricts only names.
func (p *possible) addObject(n *schemaTree, content map[string]any) {
	const metadata = "metadata"
	p.addValue(n)
	for name, value := range content {
		if name != metadata {
			p.add(n.property(name), value)
			continue
		}
		part := n.property(metadata)
		p.addValue(part)
		all, _ := value.(map[string]any)
		for _, name := range []string{"name", "generateName"} {
			p.add(part.property(name), all[name])
		}
	}
	for _, a := range n.alternatives {
		p.add(a, content)
	}
}

// add adds those of a value. It can have errors without a schema, too: the labels of an embedded object can.
func (p *possible) add(n *schemaTree, value any) {
	if !p.few() {
		return
	}
	p.addValue(n)
	if n != nil {
		for _, a := range n.alternatives {
			p.add(a, value)
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			p.add(n.property(name), v)
		}
	case []any:
		for _, v := range value {
			p.add(n.item(), v)
		}
	}
}

func (p *possible) addValue(n *schemaTree) {
	if n == nil {
		p.errors += valueErrors
		return
	}
	p.errors += n.errors
	p.texts += n.enum
}

// property returns the schema of a property, or nil if there is none.
func (n *schemaTree) property(name string) *schemaTree {
	if n == nil {
		return nil
	}
	if part, known := n.properties[name]; known {
		return part
	}
	return n.others
}

// item returns the schema of the elements of a list, or nil if there is none.
func (n *schemaTree) item() *schemaTree {
	if n == nil {
		return nil
	}
	return n.items
}
