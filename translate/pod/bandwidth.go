// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/translate"
)

// The annotations by which network plugins shape the traffic of a pod.
const (
	AnnotationIngressBandwidth = "kubernetes.io/ingress-bandwidth"
	AnnotationEgressBandwidth  = "kubernetes.io/egress-bandwidth"
)

func bandwidths(b translate.PodBandwidth) map[string]translate.Bandwidth {
	return map[string]translate.Bandwidth{AnnotationIngressBandwidth: b.Ingress, AnnotationEgressBandwidth: b.Egress}
}

// plainBandwidth matches what a bandwidth may look like. A tenant writes it, and some quantities, such as 1e-2000000000, take hours to parse or
// to compare.
var plainBandwidth = regexp.MustCompile(`^[0-9.]{1,24}([a-zA-Z]{0,2}|[eE][+-]?[0-9]{1,2})$`)

// ParseBandwidth returns a bandwidth in bits per second, from 1k to 1P, as Kubernetes has always bounded these annotations.
func ParseBandwidth(text string) (resource.Quantity, error) {
	var q resource.Quantity
	err := errors.New("not plain")
	if plainBandwidth.MatchString(text) {
		q, err = resource.ParseQuantity(text)
	}
	if err != nil || q.CmpInt64(1e3) < 0 || q.CmpInt64(1e15) > 0 {
		return resource.Quantity{}, fmt.Errorf("must be a number of bits per second from 1k to 1P, such as 10M")
	}
	return q, nil
}

// checkBandwidth refuses annotations that the host's network plugin wouldn't understand, and those above the maximum.
func checkBandwidth(bounds translate.PodBandwidth, meta *metav1.ObjectMeta) (errs field.ErrorList) {
	for key, bound := range bandwidths(bounds) {
		text, set := meta.Annotations[key]
		if !set {
			continue
		}
		at := field.NewPath("metadata", "annotations").Key(key)
		asked, err := ParseBandwidth(text)
		switch {
		case err != nil:
			errs = append(errs, field.Invalid(at, text, err.Error()))
		case bound.Max != nil && asked.Cmp(*bound.Max) > 0:
			errs = append(errs, field.Invalid(at, text, fmt.Sprintf("pods of this space may have at most %s; set a lower bandwidth, or remove the annotation", bound.Max)))
		}
	}
	return errs
}

// addBandwidth adds to the annotations of v's host pod the bandwidth that it may use.
func addBandwidth(bounds translate.PodBandwidth, v *metav1.ObjectMeta, host *metav1.ObjectMeta) {
	for key, bound := range bandwidths(bounds) {
		value := cmp.Or(bound.Default, bound.Max)
		if asked, err := ParseBandwidth(v.Annotations[key]); err == nil {
			value = &asked
		}
		if value != nil && bound.Max != nil && value.Cmp(*bound.Max) > 0 {
			value = bound.Max
		}
		if value != nil {
			host.Annotations[key] = value.String()
		}
	}
}
