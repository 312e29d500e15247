// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
)

// Placement says on which nodes of the host a space's pods run (M2). The zero value means all nodes.
type Placement struct {
	// Selector is added to the node selector of each pod.
	Selector map[string]string
	// Labels are the keys of node labels that tenants may use in selectors.
	Labels []string
	// Tolerations are added to those of each pod.
	Tolerations []corev1.Toleration
	// ByName allows pods to name a node of the space by its alias, as the pods of a DaemonSet do.
	ByName bool
}

// nameField is part of [Placement.String] if pods may name nodes. It is not a valid label key.
const nameField = "fields:" + metav1.ObjectNameField

// tolerationPrefix begins what [Placement.String] contains for a toleration. It is not part of a valid label key.
const tolerationPrefix = "toleration:"

// String returns the form that the host's admission policies read, separated by commas: the labels of the selector as
// key=value, the keys for tenants, and the tolerations as toleration:KEY:OPERATOR:VALUE:EFFECT. If pods may name nodes,
// fields:metadata.name is among the keys.
func (p Placement) String() string {
	all := slices.Clone(p.Labels)
	for key, value := range p.Selector {
		all = append(all, key+"="+value)
	}
	for _, t := range p.Tolerations {
		all = append(all, strings.Join([]string{tolerationPrefix + t.Key, string(cmp.Or(t.Operator, corev1.TolerationOpEqual)), t.Value, string(t.Effect)}, ":"))
	}
	if p.ByName {
		all = append(all, nameField)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// Check returns an error for each place where a pod uses a node label that is not for tenants, whether to select, to
// exclude, or to name nodes.
func (p Placement) Check(spec *corev1.PodSpec) (errs field.ErrorList) {
	path := field.NewPath("spec")
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if p.ByName && key == corev1.LabelHostname {
			continue
		}
		errs = append(errs, p.checkLabel(path.Child("nodeSelector").Key(key), key, []string{spec.NodeSelector[key]})...)
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return errs
	}
	path, affinity := path.Child("affinity", "nodeAffinity"), spec.Affinity.NodeAffinity
	empty, refused := true, field.ErrorList{}
	for at, term := range nodeTerms(path, affinity) {
		empty = false
		refused = append(refused, p.checkTerm(at, term)...)
	}
	if none := len(p.Labels) == 0 && !p.ByName; none && (empty || len(refused) > 0) {
		return append(errs, field.Forbidden(path, p.remedy()))
	}
	return append(errs, refused...)
}

// nodeTerms iterates over all node selector terms, with their field paths.
func nodeTerms(path *field.Path, affinity *corev1.NodeAffinity) iter.Seq2[*field.Path, *corev1.NodeSelectorTerm] {
	return func(yield func(*field.Path, *corev1.NodeSelectorTerm) bool) {
		if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			at := path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
			for i := range required.NodeSelectorTerms {
				if !yield(at.Index(i), &required.NodeSelectorTerms[i]) {
					return
				}
			}
		}
		preferred, at := affinity.PreferredDuringSchedulingIgnoredDuringExecution, path.Child("preferredDuringSchedulingIgnoredDuringExecution")
		for i := range preferred {
			if !yield(at.Index(i).Child("preference"), &preferred[i].Preference) {
				return
			}
		}
	}
}

func (p Placement) checkTerm(path *field.Path, term *corev1.NodeSelectorTerm) (errs field.ErrorList) {
	if len(term.MatchFields) > 0 && !p.ByName {
		errs = append(errs, field.Forbidden(path.Child("matchFields"), "the names of nodes are hidden in a space; remove the field"))
	}
	for i, f := range term.MatchFields {
		if p.ByName && (f.Key != metav1.ObjectNameField || f.Operator != corev1.NodeSelectorOpIn || len(f.Values) != 1) {
			errs = append(errs, field.Forbidden(path.Child("matchFields").Index(i),
				"a node of the space is named by "+metav1.ObjectNameField+", the operator In, and one name of 'kubectl get nodes'"))
		}
	}
	for i, e := range term.MatchExpressions {
		if p.ByName && namesNode(e) {
			continue
		}
		var values []string
		if e.Operator == corev1.NodeSelectorOpIn && e.Key == corev1.LabelOSStable {
			values = e.Values
		}
		errs = append(errs, p.checkLabel(path.Child("matchExpressions").Index(i).Child("key"), e.Key, values)...)
	}
	return errs
}

// checkLabel rejects a label that is not for tenants, and a label for which the admin has set another value: the pod
// could run nowhere, or only on other nodes than it asks for. All pods may select nodes that run Linux, as those of many charts do: it tells
// nothing of the nodes.
func (p Placement) checkLabel(path *field.Path, key string, values []string) field.ErrorList {
	linux := key == corev1.LabelOSStable && slices.Equal(values, []string{string(corev1.Linux)})
	if !linux && !slices.Contains(p.Labels, key) {
		return field.ErrorList{field.Forbidden(path, p.remedy())}
	}
	if chosen, ok := p.Selector[key]; ok && len(values) > 0 && !slices.Contains(values, chosen) {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("pods of this space run on nodes with %s=%s only", key, chosen))}
	}
	return nil
}

func (p Placement) remedy() string {
	if len(p.Labels) == 0 {
		return "nodes are hidden in a space; remove the field and let the host's scheduler choose"
	}
	return "nodes are hidden in a space, except for the labels " + strings.Join(p.Labels, ", ") + "; remove the field or use these"
}

// Place sets where v's host pod, which is about to be created, runs: where v asks, and where the space's pods run. v
// must have passed [Placement.Check]. hostNode returns the host's node for an alias. A pod with an unknown alias must
// not be created.
func (p Placement) Place(v, host *corev1.Pod, hostNode func(alias string) (name string, ok bool)) (errs field.ErrorList) {
	selector, affinity := v.Spec.NodeSelector, nodeAffinity(&v.Spec).DeepCopy()
	if p.ByName {
		selector, affinity = byName(selector, affinity)
	}
	selector = maps.Clone(selector)
	if selector == nil {
		selector = map[string]string{}
	}
	maps.Copy(selector, p.Selector)
	if len(selector) > 0 {
		host.Spec.NodeSelector = selector
	}
	host.Spec.Tolerations = append(host.Spec.Tolerations, p.Tolerations...)
	if affinity == nil {
		return nil
	}
	if host.Spec.Affinity == nil {
		host.Spec.Affinity = &corev1.Affinity{}
	}
	host.Spec.Affinity.NodeAffinity = affinity
	for path, term := range nodeTerms(field.NewPath("spec", "affinity", "nodeAffinity"), affinity) {
		for i := range term.MatchFields {
			for j, alias := range term.MatchFields[i].Values {
				name, ok := hostNode(alias)
				if !ok {
					errs = append(errs, field.Forbidden(path.Child("matchFields").Index(i).Child("values").Index(j),
						fmt.Sprintf("node %q does not exist in this space; see 'kubectl get nodes'", alias)))
				}
				term.MatchFields[i].Values[j] = name
			}
		}
	}
	return errs
}

// nodeAffinity returns the node affinity of a pod; nil if there is none.
func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity
}

// namesNode reports whether an expression selects one node by its host name label.
func namesNode(e corev1.NodeSelectorRequirement) bool {
	return e.Key == corev1.LabelHostname && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1
}

// byName replaces requirements on the label kubernetes.io/hostname by requirements on the field metadata.name. In a
// space, both are the alias of a node. On the host, the label may differ from the name, and Berth knows only the name.
// It changes affinity, and does not change selector.
func byName(selector map[string]string, affinity *corev1.NodeAffinity) (map[string]string, *corev1.NodeAffinity) {
	named := func(node string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	}
	if affinity != nil {
		for _, term := range nodeTerms(nil, affinity) {
			var others []corev1.NodeSelectorRequirement
			for _, e := range term.MatchExpressions {
				if namesNode(e) {
					term.MatchFields = append(term.MatchFields, named(e.Values[0]))
				} else {
					others = append(others, e)
				}
			}
			term.MatchExpressions = others
		}
	}
	node, ok := selector[corev1.LabelHostname]
	if !ok {
		return selector, affinity
	}
	selector = maps.Clone(selector)
	delete(selector, corev1.LabelHostname)
	if affinity == nil {
		affinity = &corev1.NodeAffinity{}
	}
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		term.MatchFields = append(term.MatchFields, named(node))
	}
	return selector, affinity
}

// NamedNodes returns the aliases of the nodes that v asks for by name.
func NamedNodes(v *corev1.Pod) (aliases []string) {
	_, affinity := byName(v.Spec.NodeSelector, nodeAffinity(&v.Spec).DeepCopy())
	if affinity == nil {
		return nil
	}
	for _, term := range nodeTerms(nil, affinity) {
		for _, f := range term.MatchFields {
			aliases = append(aliases, f.Values...)
		}
	}
	return aliases
}

// transient returns the taints of nodes with temporary conditions. Such a node still belongs to the space.
func transient() []string {
	return []string{
		corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeMemoryPressure,
		corev1.TaintNodeDiskPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeNetworkUnavailable,
	}
}

// Selects reports whether a node of the host matches the selector.
func (p Placement) Selects(node *corev1.Node) bool {
	for key, value := range p.Selector {
		if have, ok := node.Labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// tolerates reports whether all pods of the space tolerate a taint.
func (p Placement) tolerates(taint *corev1.Taint) bool {
	return slices.ContainsFunc(p.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, taint, false) })
}

// View reports whether a node of the host is for the space, and what its virtual node shows. It reads only taints and
// the labels in p.
func (p Placement) View(node *corev1.Node) (view NodeView, is bool) {
	if !p.Selects(node) {
		return NodeView{Closed: corev1.TaintEffectNoExecute}, false
	}
	is = true
	for _, taint := range node.Spec.Taints {
		if keepsOff(taint) && !p.tolerates(&taint) { // includes memory pressure, because the admission of few hosts lets pods tolerate it
			is, view.Closed = is && slices.Contains(transient(), taint.Key), corev1.TaintEffectNoSchedule
		}
	}
	for _, key := range p.Labels {
		if value, ok := node.Labels[key]; ok {
			if view.Labels == nil {
				view.Labels = map[string]string{}
			}
			view.Labels[key] = value
		}
	}
	return view, is
}

// TrimNode returns a copy of a node with only what placements read, and its addresses.
func TrimNode(node *corev1.Node) *corev1.Node {
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels}}
	out.Status.Addresses = node.Status.Addresses // no space sees them; see [AddressSet]
	for _, taint := range node.Spec.Taints {
		if keepsOff(taint) {
			out.Spec.Taints = append(out.Spec.Taints, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
		}
	}
	return out
}

func keepsOff(t corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}
