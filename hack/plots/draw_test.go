// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const figures = `{"rss_awake_mib": {"berth": 9.7, "stock": 112}, "create_s": {"berth": 0.32, "stock": 2.61}, "wake_s": {"berth": 0.17, "stock": 2.61},
 "idle_cpu_cores_100": {"berth": 0.04, "stock": 0.98}, "list_5000_s": {"berth": 0.1, "stock": 0.12}, "watch_p99_s": {"berth": 7, "stock": 8},
 "writes_per_s": {"berth": 2000, "stock": 1000}, "burst_pods_per_s": {"berth": 160, "stock": 200}, "pod_to_host_ms_p50": {"berth": 13, "stock": 9},
 "pod_to_host_ms_p99": {"berth": 34, "stock": 25}, "pods_10000_s": {"berth": 69, "stock": 37}, "noisy_p99_ms": {"berth": 13, "stock": 4}}`

func TestPlotsAreDrawnFromTheFiguresOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "bench.json"), filepath.Join(dir, "kind.json")
	write(t, first, figures)
	write(t, second, `{"kind_pod_to_running_ms_p50": {"berth": 863, "stock": 753}}`)
	if err := run(dir, "two cores", []string{first, second}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"bench-cost.svg": {"9.7", "112", "2.6", "two cores"},
		"bench-use.svg":  {"0.50", "1.25", "1.15", "two cores"}, // of 2,000 writes and 160 pods a second, less is worse
	} {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(string(svg), ">"+text+"<") {
				t.Errorf("%s lacks the text %s", name, text)
			}
		}
		decoder := xml.NewDecoder(strings.NewReader(string(svg)))
		for {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s is not XML: %v", name, err)
			}
		}
	}
}

func TestAMeasureThatIsMissingIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	write(t, file, `{"rss_awake_mib": {"berth": 9.7, "stock": 112}}`)
	err := run(t.TempDir(), "", []string{file})
	if err == nil || !strings.Contains(err.Error(), "measure ") {
		t.Errorf("figures without most measures are drawn: %v", err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
