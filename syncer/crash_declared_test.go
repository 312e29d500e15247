// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
)

// sentTickets, passes, and shownTickets are the plurals of the resources that the crash walk declares: two to the host and one from it.
const sentTickets, passes, shownTickets = "tickets", "passes", "offers"

// declareTickets declares tickets that name Services, and passes, to the host, and offers, from the host, and adds their rows. The groups
// differ, because a client asks only once which kinds a group has.
func (w *crashWalk) declareTickets() {
	group := w.space.Name + ".example.com"
	w.sent = w.declare(w.inSpace, w.onHost, tickets(group), v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncToHost, Version: "v1", Status: []string{"status.phase"},
		Fields: []v1alpha1.SyncedField{{Path: "spec.note"}, {Path: "spec.backend", Type: v1alpha1.FieldObject, Resource: resources.Services}},
	})
	w.declarePasses(group)
	w.offered = w.declare(w.inSpace, w.onHost, offers("host."+group), v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncFromHost, Version: "v1", Status: []string{"status.phase"}, Fields: []v1alpha1.SyncedField{{Path: "spec.note"}},
		Selector: metav1.SetAsLabelSelector(map[string]string{crashLane: w.space.Name}),
	})
	w.rows = append(w.rows,
		crashRow{
			name: w.sent.Name, list: func() client.ObjectList { return ticketsOf(w.sent) },
			make: func(_ *crashWalk, name string) client.Object { // which is the name of a Service, too
				o := w.sent.New()
				o.Object["spec"] = map[string]any{"backend": name}
				return o
			},
			set: setNote,
			// On the host, the Service has its name there.
			fact: func(o client.Object) string {
				backend := backendOf(o)
				if o.GetNamespace() != w.space.HostNamespace() {
					backend = w.space.HostName(o.GetNamespace(), backend, declaration.NameLimit)
				}
				return fmt.Sprintf("%s for %s", noteOf(o), backend)
			},
		},
		crashRow{
			name: w.offered.Name, cluster: true, from: true, list: func() client.ObjectList { return ticketsOf(w.offered) },
			make: func(*crashWalk, string) client.Object { return w.offered.New() },
			set:  setNote, fact: noteOf,
		})
}

// process does what controllers of the host do: the status of each ticket, pass, and offer gets its note, after the Secret of a pass.
func (w *crashWalk) process(ctx context.Context) error {
	for d, where := range map[*declaration.Declaration]client.ListOption{
		w.sent: client.InNamespace(w.space.HostNamespace()), w.returning: client.InNamespace(w.space.HostNamespace()), w.offered: client.MatchingLabels{crashLane: w.space.Name},
	} {
		all := ticketsOf(d)
		if err := w.onHost.List(ctx, all, where); err != nil {
			return fmt.Errorf("list %s on the host: %w", d.Name, err)
		}
		for i := range all.Items {
			o := &all.Items[i]
			if running(o) {
				continue
			}
			if d == w.returning {
				if issued, err := w.issue(ctx, o); err != nil {
					return fmt.Errorf("write the Secret of %s: %w", o.GetName(), err)
				} else if !issued {
					continue
				}
			}
			o.Object["status"] = map[string]any{"phase": noteOf(o)}
			if err := w.onHost.Status().Update(ctx, o); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return fmt.Errorf("write the status of %s: %w", o.GetName(), err)
			}
		}
	}
	return nil
}

func setNote(_ *crashWalk, o client.Object, revision int) {
	if err := unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, fmt.Sprint(revision), "spec", "note"); err != nil {
		panic(err) // the spec is not an object, which the definition says it is
	}
}

func textOf(o client.Object, path ...string) string {
	text, _, _ := unstructured.NestedString(o.(*unstructured.Unstructured).Object, path...)
	return text
}

func noteOf(o client.Object) string    { return textOf(o, "spec", "note") }
func backendOf(o client.Object) string { return textOf(o, "spec", "backend") }
func phaseOf(o client.Object) string   { return textOf(o, "status", "phase") }
