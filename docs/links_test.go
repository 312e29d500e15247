// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Links between pages lead to files and headings that are there.
func TestLinksBetweenPagesLeadSomewhere(t *testing.T) {
	anchors := map[string]map[string]bool{}
	links := map[string][]string{}
	for _, root := range []string{"../*.md", "."} {
		for _, page := range pages(t, root) {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			anchors[page], links[page] = headings(string(text)), relativeLinks(string(text))
		}
	}
	checked := 0
	for page, all := range links {
		for _, link := range all {
			checked++
			path, anchor, _ := strings.Cut(link, "#")
			file := page
			if path != "" {
				file = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: link to %s: %v", page, link, err)
			} else if there := anchors[file]; anchor != "" && there != nil && !there[anchor] {
				t.Errorf("%s: link to %s: the page has no such heading", page, link)
			}
		}
	}
	if checked < 100 {
		t.Errorf("found only %d links: this test looks for another form", checked)
	}
}

// pages are the files that a pattern matches, or all pages below a directory.
func pages(t *testing.T, root string) (all []string) {
	t.Helper()
	if strings.Contains(root, "*") {
		all, err := filepath.Glob(root)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".md") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// headings are the anchors of a page, as they are made of its headings.
func headings(text string) map[string]bool {
	found := map[string]bool{}
	noSigns := regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)
	target := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(withoutCode(text), -1) {
		heading := strings.ToLower(target.ReplaceAllString(m[1], "$1"))
		found[strings.ReplaceAll(noSigns.ReplaceAllString(heading, ""), " ", "-")] = true
	}
	return found
}

func relativeLinks(text string) (all []string) {
	text = regexp.MustCompile("`[^`\n]*`").ReplaceAllString(withoutCode(text), "")
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(m[1], "://") {
			all = append(all, m[1])
		}
	}
	return all
}

// withoutCode is a text without its blocks of code.
func withoutCode(text string) string {
	return regexp.MustCompile("(?ms)^ *```.*?^ *```").ReplaceAllString(text, "")
}
