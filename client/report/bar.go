// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// barCells is the width of a bar.
const barCells = 10

// Style is the set of characters that a report is drawn with.
type Style struct {
	full, empty              string
	branch, last, line, none string
}

// Unicode returns the style for terminals that show UTF-8.
func Unicode() Style {
	return Style{full: "█", empty: "░", branch: "├── ", last: "└── ", line: "│   ", none: "    "}
}

// ASCII returns the style for all other terminals.
func ASCII() Style {
	return Style{full: "#", empty: "-", branch: "|-- ", last: "`-- ", line: "|   ", none: "    "}
}

// StyleOf returns the style for the locale of an environment, as the variables LC_ALL, LC_CTYPE, and LANG set it.
func StyleOf(getenv func(string) string) Style {
	for _, variable := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(getenv(variable)); locale != "" {
			if strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8") {
				return Unicode()
			}
			return ASCII()
		}
	}
	return ASCII()
}

// Bar draws how much of a limit is used. Anything above nothing fills a cell, and only what reaches the limit fills all.
func (s Style) Bar(used, limit float64) string {
	cells := barCells
	switch {
	case used <= 0:
		cells = 0
	case used < limit:
		cells = min(max(1, int(used/limit*barCells)), barCells-1)
	}
	return strings.Repeat(s.full, cells) + strings.Repeat(s.empty, barCells-cells)
}

// usage returns a bar and USED/LIMIT, or USED if there is no limit.
func (s Style) usage(used, limit *resource.Quantity) string {
	if used == nil {
		used = &resource.Quantity{}
	}
	if limit == nil {
		return used.String()
	}
	return s.Bar(used.AsApproximateFloat64(), limit.AsApproximateFloat64()) + " " + used.String() + "/" + limit.String()
}

// count returns a bar and COUNT/LIMIT, or COUNT if there is no limit.
func (s Style) count(used, limit *int32) string {
	return s.usage(quantityOf(used), quantityOf(limit))
}

// compute returns the usage of CPU or memory: limits.RESOURCE of the quota, or requests.RESOURCE if it has no limit of
// that.
func (s Style) compute(used, hard map[corev1.ResourceName]resource.Quantity, name corev1.ResourceName) string {
	return s.first(used, hard, "limits."+name, "requests."+name)
}

// first returns the usage of the first resource that has a limit, or that is used.
func (s Style) first(used, hard map[corev1.ResourceName]resource.Quantity, names ...corev1.ResourceName) string {
	for _, key := range names {
		if limit, found := hard[key]; found {
			have := used[key]
			return s.usage(&have, &limit)
		}
	}
	for _, key := range names {
		if have, found := used[key]; found {
			return s.usage(&have, nil)
		}
	}
	return "-"
}
