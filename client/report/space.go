// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// none stands for what is not set.
const none = "<none>"

// Described is what a description of a space is made of.
type Described struct {
	Space *v1alpha1.Space
	// Events are those of the space. EventsError is why there are none, if they couldn't be read.
	Events      []corev1.Event
	EventsError error
}

// Space describes a space as kubectl describe does: its spec in short, conditions, usage, and events.
func Space(out io.Writer, d Described, style Style, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, field := range spaceFields(d.Space, style, now) {
		fmt.Fprintf(w, "%s:\t%s\n", field[0], cmp.Or(oneLine(field[1]), none))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	conditions := [][]string{}
	for _, c := range d.Space.Status.Conditions {
		conditions = append(conditions, []string{c.Type, string(c.Status), age(c.LastTransitionTime, now), c.Reason, c.Message})
	}
	events := [][]string{}
	slices.SortStableFunc(d.Events, func(a, b corev1.Event) int { return eventTime(&a).Compare(eventTime(&b).Time) })
	for i := range d.Events {
		e := &d.Events[i]
		events = append(events, []string{e.Type, e.Reason, age(eventTime(e), now), cmp.Or(e.Source.Component, e.ReportingController), e.Message})
	}
	if err := section(out, "Conditions", []string{"Type", "Status", "Since", "Reason", "Message"}, conditions); err != nil {
		return err
	}
	if err := section(out, "Usage", []string{"Resource", "Used/Quota"}, quotaRows(d.Space.Status.Quota, style)); err != nil {
		return err
	}
	if d.EventsError != nil {
		_, err := fmt.Fprintf(out, "Events:  not read: %v\n", d.EventsError)
		return err
	}
	return section(out, "Events", []string{"Type", "Reason", "Age", "From", "Message"}, events)
}

func spaceFields(s *v1alpha1.Space, style Style, now time.Time) [][2]string {
	spec, status := &s.Spec, &s.Status
	isolation := string(spec.Isolation)
	if status.Isolation != "" && status.Isolation != spec.Isolation {
		isolation = fmt.Sprintf("%s (runs %s)", isolation, status.Isolation)
	}
	var created string
	if !s.CreationTimestamp.IsZero() {
		created = fmt.Sprintf("%s (%s ago)", s.CreationTimestamp.UTC().Format(time.RFC3339), age(s.CreationTimestamp, now))
	}
	fields := [][2]string{
		{"Name", s.Name}, {"Tenant", spec.TenantName}, {"Labels", pairs(s.Labels)}, {"Created", created},
		{"State", string(status.State)}, {"Endpoint", status.Endpoint}, {"Version", status.Version}, {"Platform", spec.PlatformName},
		{"Isolation", isolation}, {"Deletion policy", string(spec.DeletionPolicy)}, {"Sleep", sleepText(spec.Sleep)}, {"Snapshots", snapshotsText(spec.Snapshots)},
		{"Owners", ownersText(spec.Access)}, {"Publications", strings.Join(spec.Publications, ", ")},
		{"Namespaces", namespacesText(s, style)},
	}
	if ptr.Deref(spec.Paused, false) {
		fields = append(fields, [2]string{"Paused", "true"})
	}
	if ptr.Deref(spec.Access.Cordoned, false) {
		fields = append(fields, [2]string{"Cordoned", "true (clients may read and delete only)"})
	}
	if s.DeletionTimestamp != nil {
		fields = append(fields, [2]string{"Deleting", "for " + age(*s.DeletionTimestamp, now)})
	}
	return fields
}

func sleepText(s v1alpha1.Sleep) string {
	switch {
	case s.IdleAfterSeconds == nil:
		return "as the platform's --idle-after says"
	case *s.IdleAfterSeconds == 0:
		return "never"
	}
	return fmt.Sprintf("when idle for %s", duration.HumanDuration(time.Duration(*s.IdleAfterSeconds)*time.Second))
}

func snapshotsText(s v1alpha1.Snapshots) string {
	if s.To == "" && s.IntervalSeconds == nil && s.Keep == 0 && s.Replication == "" {
		return "as the platform's --snapshot-to says"
	}
	text := "to " + cmp.Or(s.To, "the platform's --snapshot-to")
	if s.IntervalSeconds != nil {
		text += fmt.Sprintf(", every %s", duration.HumanDuration(time.Duration(*s.IntervalSeconds)*time.Second))
	}
	if s.Keep > 0 {
		text += fmt.Sprintf(", keeping %d", s.Keep)
	}
	if s.Replication != "" {
		text += fmt.Sprintf(", replication %s", s.Replication)
	}
	return text
}

func ownersText(a v1alpha1.Access) string {
	var owners []string
	for _, o := range a.Owners {
		owners = append(owners, fmt.Sprintf("%s %s (%s)", o.Kind, o.Name, strings.Join(o.ClusterRoles, ", ")))
	}
	return strings.Join(owners, "; ")
}

func namespacesText(s *v1alpha1.Space, style Style) string {
	text := style.count(s.Status.NamespaceCount, s.Spec.Namespaces.Quota)
	const listed = 5
	names := s.Status.Namespaces
	if len(names) > listed {
		return fmt.Sprintf("%s: %s, and %d more", text, strings.Join(names[:listed], ", "), len(names)-listed)
	}
	if len(names) > 0 {
		return text + ": " + strings.Join(names, ", ")
	}
	return text
}

func quotaRows(q v1alpha1.QuotaStatus, style Style) [][]string {
	rows := [][]string{}
	for _, name := range slices.Sorted(maps.Keys(q.Hard)) {
		used, hard := q.Used[name], q.Hard[name]
		rows = append(rows, []string{string(name), style.usage(&used, &hard)})
	}
	return rows
}

// section prints a table below a heading.
func section(out io.Writer, name string, columns []string, rows [][]string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintf(out, "%s:  %s\n", name, none)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s:\n", name)
	rule := make([]string, len(columns))
	for i, c := range columns {
		rule[i] = strings.Repeat("-", len(c))
	}
	for _, row := range append([][]string{columns, rule}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = oneLine(cell)
		}
		fmt.Fprintf(w, "  %s\n", strings.Join(cells, "\t"))
	}
	return w.Flush()
}

func pairs(labels map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, key+"="+labels[key])
	}
	return strings.Join(list, ", ")
}

func age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

func eventTime(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return metav1.Time(e.Series.LastObservedTime)
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	case !e.EventTime.IsZero():
		return metav1.Time(e.EventTime)
	}
	return e.CreationTimestamp
}

// oneLine makes text safe for a line of a terminal. Messages can contain what users of a space chose.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ReplaceAll(strings.TrimSpace(text), "\n", "; "))
}
