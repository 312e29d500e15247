// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestAProcessIsLimitedToWhatRootHas(t *testing.T) {
	own := &limits{capabilities: []string{"CAP_CHOWN"}, oomScoreAdj: 0}
	for reason, test := range map[string]struct {
		asked, want string
		changed     bool
	}{
		"what root has is left":       {`{"capabilities":{"bounding":["CAP_CHOWN"]},"oomScoreAdj":5}`, `{"capabilities":{"bounding":["CAP_CHOWN"]},"oomScoreAdj":5}`, false},
		"what root lacks is left out": {`{"capabilities":{"bounding":["CAP_CHOWN","CAP_X"],"effective":["CAP_X"]}}`, `{"capabilities":{"bounding":["CAP_CHOWN"],"effective":[]}}`, true},
		"a score below is raised":     {`{"oomScoreAdj":-999,"args":["a"]}`, `{"args":["a"],"oomScoreAdj":0}`, true},
		"none of them is fine":        {`{}`, `{}`, false},
	} {
		t.Run(reason, func(t *testing.T) {
			var process map[string]any
			if err := json.Unmarshal([]byte(test.asked), &process); err != nil {
				t.Fatal(err)
			}
			changed := own.limit(process)
			got, err := json.Marshal(process)
			if err != nil {
				t.Fatal(err)
			}
			if changed != test.changed || string(got) != test.want {
				t.Errorf("%s becomes %s (%v), want %s (%v)", test.asked, got, changed, test.want, test.changed)
			}
		})
	}
}

func TestOnlyWhatStartsSomethingIsEdited(t *testing.T) {
	bundle := t.TempDir()
	file := filepath.Join(bundle, "config.json")
	const asked = `{"ociVersion":"1.0.2","process":{"capabilities":{"bounding":["CAP_NONE_SUCH"]}}}`
	for reason, test := range map[string]struct {
		args []string
		want string
	}{
		"create":            {[]string{"--root", "/r", "create", "--bundle", bundle, "id"}, `{"ociVersion":"1.0.2","process":{"capabilities":{"bounding":[]}}}`},
		"run, one word":     {[]string{"run", "--bundle=" + bundle, "id"}, `{"ociVersion":"1.0.2","process":{"capabilities":{"bounding":[]}}}`},
		"a state is a look": {[]string{"state", "id"}, asked},
	} {
		t.Run(reason, func(t *testing.T) {
			if err := os.WriteFile(file, []byte(asked), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := prepare(test.args); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != test.want {
				t.Errorf("the bundle says %s (%v), want %s", got, err, test.want)
			}
		})
	}
}
