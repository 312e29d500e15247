// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
)

// words are what host objects have in common, again and again.
var words = func() map[string]string {
	all := map[string]string{}
	for _, word := range []string{
		translate.LabelSpace, translate.LabelNamespace, translate.LabelManagedBy, translate.ManagedBy,
		translate.AnnotationName, translate.AnnotationUID, annotationDigest,
		metav1.NamespaceDefault, metav1.NamespaceSystem, "kubernetes", "https", "http",
		string(corev1.ProtocolTCP), string(corev1.ProtocolUDP), string(corev1.ServiceTypeClusterIP), corev1.ClusterIPNone,
		string(corev1.ServiceAffinityNone), string(corev1.IPv4Protocol), string(corev1.IPv6Protocol),
		string(corev1.IPFamilyPolicySingleStack), string(corev1.ServiceInternalTrafficPolicyCluster),
	} {
		all[word] = word
	}
	return all
}()

// share lets host objects, of which a watch holds those of sleeping spaces too,
// have one copy of the strings that they have in common. A decoder makes one for
// each; scattered among garbage, each would keep a page of memory.
func share(obj any) {
	o, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	var labels map[string]string
	if all := o.GetLabels(); len(all) > 0 {
		labels = make(map[string]string, len(all))
		for key, value := range all {
			labels[word(key)] = word(value)
		}
		o.SetLabels(labels)
	}
	if all := o.GetAnnotations(); len(all) > 0 {
		annotations := make(map[string]string, len(all))
		for key, value := range all {
			switch {
			case value == labels[translate.LabelNamespace]:
				value = labels[translate.LabelNamespace]
			default:
				value = word(value)
			}
			annotations[word(key)] = value
		}
		o.SetAnnotations(annotations)
	}
	if s, ok := obj.(*corev1.Service); ok {
		shareService(&s.Spec)
	}
}

func shareService(s *corev1.ServiceSpec) {
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Name, p.Protocol = word(p.Name), word(p.Protocol)
	}
	for i := range s.ClusterIPs {
		if s.ClusterIPs[i] == s.ClusterIP {
			s.ClusterIPs[i] = s.ClusterIP
		}
	}
	for i := range s.IPFamilies {
		s.IPFamilies[i] = word(s.IPFamilies[i])
	}
	s.Type, s.SessionAffinity, s.ClusterIP = word(s.Type), word(s.SessionAffinity), word(s.ClusterIP)
	if p := s.IPFamilyPolicy; p != nil {
		*p = word(*p)
	}
	if p := s.InternalTrafficPolicy; p != nil {
		*p = word(*p)
	}
}

// word is s, without a copy of its own if it is one of words.
func word[T ~string](s T) T {
	if shared, ok := words[string(s)]; ok {
		return T(shared)
	}
	return s
}
