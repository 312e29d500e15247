// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
)

func TestPushMetaOwnsLabelsAndSharesAnnotations(t *testing.T) {
	type args struct{ want, have metav1.ObjectMeta }
	type want struct {
		changed     bool
		labels      map[string]string
		annotations map[string]string
	}
	cases := map[string]struct {
		reason string
		args   args
		want   want
	}{
		"NothingToDo": {
			reason: "equal metadata must not cause a write to the host",
			args: args{
				want: metav1.ObjectMeta{Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"berth.dev/name": "web"}},
				have: metav1.ObjectMeta{Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"berth.dev/name": "web"}},
			},
			want: want{labels: map[string]string{"a": "1"}, annotations: map[string]string{"berth.dev/name": "web"}},
		},
		"NilAndEmptyAreEqual": {
			reason: "an API server does not tell them apart, so a push of one onto the other would never end",
			args:   args{want: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}},
			want:   want{},
		},
		"LabelsAreTheTenants": {
			reason: "a label that the tenant removed would keep matching selectors",
			args: args{
				want: metav1.ObjectMeta{Labels: map[string]string{"a": "2"}},
				have: metav1.ObjectMeta{Labels: map[string]string{"a": "1", "gone": "x"}},
			},
			want: want{changed: true, labels: map[string]string{"a": "2"}},
		},
		"AnnotationsOfOthersStay": {
			reason: "a provisioner keeps its state in annotations of the host's claim",
			args: args{
				want: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/name": "web"}},
				have: metav1.ObjectMeta{Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": "csi"}},
			},
			want: want{changed: true, annotations: map[string]string{"berth.dev/name": "web", "volume.kubernetes.io/storage-provisioner": "csi"}},
		},
		"StaleAnnotationsOfOursGo": {
			reason: "a value that the downward API no longer asks for must not stay",
			args: args{
				want: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/name": "web"}},
				have: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/name": "web", "label.berth.dev/x": "old"}},
			},
			want: want{changed: true, annotations: map[string]string{"berth.dev/name": "web"}},
		},
		"TheNodeStays": {
			reason: "the node is known only after scheduling, so that translation never wants it",
			args: args{
				want: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/name": "web"}},
				have: metav1.ObjectMeta{Annotations: map[string]string{"berth.dev/name": "web", translate.AnnotationNode: "node-1"}},
			},
			want: want{annotations: map[string]string{"berth.dev/name": "web", translate.AnnotationNode: "node-1"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wanted, have := &corev1.Pod{ObjectMeta: tc.args.want}, &corev1.Pod{ObjectMeta: *tc.args.have.DeepCopy()}
			got := want{changed: translate.PushMeta(wanted, have), labels: have.Labels, annotations: have.Annotations}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
			if translate.PushMeta(wanted, have) {
				t.Errorf("%s: a second push reports a change", tc.reason)
			}
		})
	}
}
