// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api/v1alpha1"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// X3: what is documented is read as it stands there.
func TestTheDocumentedConfigurationIsRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	o := runOptions{file: writeConfig(t, text), spaces: []string{"demo", "team-a"}, dedicated: []string{"own"}}
	config, err := o.config()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, space := range config.Spaces {
		names = append(names, space.Name+" "+string(space.Spec.Isolation))
	}
	if got, want := strings.Join(names, ", "), "team-a , team-b Dedicated, demo , own Dedicated"; got != want {
		t.Errorf("the spaces are %s, want %s", got, want)
	}
	if len(config.SpaceDefaults.Sync) != 2 || config.SpaceDefaults.PodSecurity.NetRaw != v1alpha1.Denied || config.ShowNodeAddresses || len(config.ReservedLabels) != 1 {
		t.Errorf("it is read as %+v", config.Options)
	}
}

// X3: a slip is refused in one line, with the file and the field.
func TestConfigurationsThatMeanNothingAreRefused(t *testing.T) {
	const header = "apiVersion: config.berth.dev/v1alpha1\nkind: PlatformConfiguration\n"
	for says, text := range map[string]string{
		`unknown field "spaceDefault"`:                     header + "spaceDefault: {}",
		`unknown field "spaceDefaults.podSecurity.levels"`: header + "spaceDefaults: {podSecurity: {levels: restricted}}",
		`key "reservedLabels" already set`:                 header + "reservedLabels: [a]\nreservedLabels: [b]",
		`no kind "Platform" is registered`:                 "apiVersion: config.berth.dev/v1alpha1\nkind: Platform\n",
		`must be a PlatformConfiguration of conf`:          "apiVersion: config.berth.dev/v2\nkind: PlatformConfiguration\n",
		`Object 'Kind' is missing`:                         "spaces: []",
		`nodeAddresses=Shown: must be Hidden`:              header + "nodeAddresses: Shown",
		`spaceDefaults.limits[watch]`:                      header + "spaceDefaults: {limits: {watch: 5}}",
	} {
		path := writeConfig(t, text)
		_, err := (&runOptions{file: path}).config()
		if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "--config="+path+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line that names the file and says %q", err, says)
		}
	}
	if _, err := (&runOptions{file: "/nowhere/berth.yaml"}).config(); err == nil || !strings.Contains(err.Error(), "--config: open /nowhere/berth.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}
