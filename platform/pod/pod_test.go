// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/translate"
)

// N4: the names of two spaces' objects differ, and leave room for what the host adds in labels of pods.
func TestNamesOfPodsAreShortAndNoTwoSpacesHaveTheSame(t *testing.T) {
	space := rapid.Custom(func(t *rapid.T) string {
		return rapid.StringMatching(`[a-z](-?-?-?[a-z0-9]){0,18}`).Draw(t, "start") + rapid.SampledFrom([]string{"", strings.Repeat("x", 30), "--a", "---a"}).Draw(t, "end")
	}).Filter(func(s string) bool { return len(s) <= translate.MaxSpaceName })
	rapid.Check(t, func(t *rapid.T) {
		a, b := space.Draw(t, "a"), space.Draw(t, "b")
		name := pod.Name(a)
		if problems := validation.IsDNS1123Label(name + "-0"); len(problems) > 0 || len(validation.IsValidLabelValue(name+"-0123456789")) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
		if a != b && name == pod.Name(b) {
			t.Errorf("%s and %s are both %s", a, b, name)
		}
		if !strings.HasPrefix(name, "berth-") {
			t.Errorf("%s is not what the chart's policy allows", name)
		}
	})
}

func TestATemplateThatIsNoneIsRefused(t *testing.T) {
	for says, text := range map[string]string{
		"unknown field":                `{metadata: {namespace: a}, specs: {}}`,
		"metadata.namespace":           `{spec: {template: {spec: {containers: [{name: a}], volumes: [{name: configuration, secret: {}}]}}}}`,
		"containers: must have one":    `{metadata: {namespace: a}, spec: {template: {spec: {volumes: [{name: configuration, secret: {}}]}}}}`,
		"there is none named configur": `{metadata: {namespace: a}, spec: {template: {spec: {containers: [{name: a}], volumes: [{name: configuration, emptyDir: {}}]}}}}`,
	} {
		file := filepath.Join(t.TempDir(), "template.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pod.ReadTemplate(file); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}
