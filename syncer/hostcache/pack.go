// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
)

// words are strings that many host objects contain.
var words = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, word := range []string{
		translate.LabelSpace, translate.LabelNamespace, translate.LabelManagedBy, translate.ManagedBy,
		translate.AnnotationName, translate.AnnotationUID, AnnotationDigest,
		metav1.NamespaceDefault, metav1.NamespaceSystem, "kubernetes", "https", "http",
		string(corev1.ProtocolTCP), string(corev1.ProtocolUDP), string(corev1.ServiceTypeClusterIP), corev1.ClusterIPNone,
		string(corev1.ServiceAffinityNone), string(corev1.IPv4Protocol), string(corev1.IPv6Protocol),
		string(corev1.IPFamilyPolicySingleStack), string(corev1.ServiceInternalTrafficPolicyCluster),
	} {
		all[word] = word
	}
	return all
})

// Pack copies all strings of a host object into one allocation, except for [words], which all objects share. The cache
// contains the objects of sleeping spaces, too, and a decoder allocates each string separately. Allocated among much
// garbage, each would keep a page of memory.
func Pack(obj any) {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return
	}
	var p packer
	p.visit(v.Elem())
	all := p.text.String()
	for _, set := range p.later {
		set(all)
	}
}

type packer struct {
	text  strings.Builder
	later []func(all string) // sets the strings when text is complete
}

// piece is the place of a string in a packer's text, or a word.
type piece struct {
	word     string
	from, to int
}

func (p *packer) take(s string) piece {
	if word, ok := words()[s]; ok {
		return piece{word: word}
	}
	from := p.text.Len()
	p.text.WriteString(s)
	return piece{from: from, to: p.text.Len()}
}

func (p piece) in(all string) string {
	if p.word != "" {
		return p.word
	}
	return all[p.from:p.to]
}

// visit packs the strings in v that can be set.
func (p *packer) visit(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() && v.Len() > 0 {
			text := p.take(v.String())
			p.later = append(p.later, func(all string) { v.SetString(text.in(all)) })
		}
	case reflect.Pointer:
		if !v.IsNil() {
			p.visit(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			p.visit(v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			p.visit(v.Index(i))
		}
	case reflect.Map:
		if v.CanSet() {
			p.visitMap(v)
		}
	default: // contains no strings
	}
}

// visitMap replaces a map of strings, because keys can't be set.
func (p *packer) visitMap(v reflect.Value) {
	texts, ok := v.Interface().(map[string]string)
	if !ok || len(texts) == 0 {
		return
	}
	packed := make(map[string]string, len(texts))
	for key, value := range texts {
		k, v := p.take(key), p.take(value)
		p.later = append(p.later, func(all string) { packed[k.in(all)] = v.in(all) })
	}
	v.Set(reflect.ValueOf(packed))
}
