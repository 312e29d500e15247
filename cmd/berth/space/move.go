// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

// eventTimeout is how long the event that says why a space doesn't move may take.
const eventTimeout = 5 * time.Second

func newMove(host *flags.Host) *cobra.Command {
	var change flags.Change
	var wait flags.Wait
	var to string
	cmd := &cobra.Command{
		Use:   "move NAME",
		Short: "Move a space to another shard",
		Long: `Move a space to another shard of its platform. Requests to the space are held while it
moves. Its pods, addresses, and kubeconfigs stay.

The command sets the annotation berth.dev/move-to of the space. The operator checks the
move, and without --to, chooses the shard. 'berth shard list' lists the shards, and
'berth space list -o wide' shows which one has a space.

The command exits with code 1 if the operator refuses the move, if the space moves to
another shard than --to, or if it hasn't arrived when --timeout expires; the move continues.`,
		Example: `  berth space move team-a
  berth space move team-a --to berth-2 --timeout 10m`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: host.Names("spaces", 1),
		RunE: host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			if err := change.Check(); err != nil {
				return err
			}
			space := &v1alpha1.Space{}
			if err := host.Get(cmd.Context(), client.ObjectKey{Name: args[0]}, space); err != nil {
				return err
			}
			name := progress.Name(space)
			switch space.Status.Shard {
			case "":
				return fmt.Errorf("%s has no shard: it isn't created yet, or its platform has no shards; see 'berth space describe %s'", name, space.Name)
			case to:
				change.Line(cmd, name, "already on "+to)
				return nil
			}
			m := &move{host: host, space: space, from: space.Status.Shard, to: to}
			if change.Sends() {
				if err := m.note(cmd.Context()); err != nil {
					return err
				}
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationMoveTo, to)
				if err := change.Of(host).Patch(cmd.Context(), space, client.RawPatch("application/merge-patch+json", patch)); err != nil {
					return err
				}
			}
			switch {
			case change.Dry():
				change.Line(cmd, name, "moved")
				return nil
			case !wait.Wait:
				fmt.Fprintf(cmd.OutOrStdout(), "%s is being moved\n", name)
				return nil
			}
			ctx, cancel := wait.Context(cmd.Context(), "the move continues, see 'berth space describe "+space.Name+"'")
			defer cancel()
			if err := m.await(ctx, cmd); err != nil {
				return err
			}
			change.Line(cmd, name, "moved to "+space.Status.Shard)
			return nil
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "name of the shard (default: the operator chooses one)")
	_ = cmd.RegisterFlagCompletionFunc("to", host.Names("shards", 0))
	wait.AddTo(cmd, true, "the space is on the other shard")
	change.AddTo(cmd, false)
	return cmd
}

// move is a move that was asked for.
type move struct {
	host  *hostapi.Client
	space *v1alpha1.Space
	from  string
	to    string // "" if the operator chooses one
	// earlier are the versions of earlier events, by name. It is nil if events can't be read.
	earlier map[string]string
	refused error
}

// note notes which events there are before the move.
func (m *move) note(ctx context.Context) error {
	list, err := m.events(ctx)
	if err != nil {
		return nil //nolint:nilerr // somebody who may move spaces may lack the right to read events, and is told less
	}
	m.earlier = map[string]string{}
	for i := range list.Items {
		m.earlier[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return nil
}

func (m *move) events(ctx context.Context) (*corev1.EventList, error) {
	list := &corev1.EventList{}
	return list, m.host.List(ctx, list, client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{
		"involvedObject.kind": "Space", "involvedObject.name": m.space.Name, "reason": v1alpha1.ReasonMoveRefused,
	})
}

// await waits until the space is on another shard.
func (m *move) await(ctx context.Context, cmd *cobra.Command) error {
	var decided time.Time
	err := progress.Await(ctx, cmd.ErrOrStderr(), progress.Name(m.space), func(ctx context.Context) (bool, string, error) {
		if err := m.host.Get(ctx, client.ObjectKeyFromObject(m.space), m.space); err != nil {
			return false, "", err
		}
		_, asked := m.space.Annotations[v1alpha1.AnnotationMoveTo]
		switch status := m.space.Status; {
		case status.MovingTo != "":
			return false, fmt.Sprintf("moves from %s to %s", status.Shard, status.MovingTo), nil
		case status.Shard != m.from && (m.to == "" || status.Shard == m.to):
			return true, "", nil
		case asked:
			return false, "waiting for the operator", nil
		case status.Shard != m.from: // it moved already, or its shard died
			m.refused = fmt.Errorf("%s moved to %s, not to %s: %s", progress.Name(m.space), status.Shard, m.to, cmp.Or(m.reason(ctx), "it was moved meanwhile; run the command again"))
			return true, "", nil
		case decided.IsZero():
			decided = time.Now()
		}
		m.refused = m.refusal(ctx, time.Since(decided) >= eventTimeout)
		return m.refused != nil, "", nil
	})
	return errors.Join(err, m.refused)
}

// refusal returns why the operator does not move the space, or nil if there is no event yet and it isn't the last look.
func (m *move) refusal(ctx context.Context, last bool) error {
	if reason := m.reason(ctx); reason != "" {
		return fmt.Errorf("%s stays on %s: %s", progress.Name(m.space), m.from, reason)
	}
	if last || m.earlier == nil {
		return fmt.Errorf("%s stays on %s; 'berth space describe %s' shows events with the reason", progress.Name(m.space), m.from, m.space.Name)
	}
	return nil
}

// reason returns what an event says that has come since the move was asked for; "" if there is none.
func (m *move) reason(ctx context.Context) string {
	list, err := m.events(ctx)
	if err != nil || m.earlier == nil {
		return ""
	}
	for i := range list.Items {
		if event := &list.Items[i]; m.earlier[event.Name] != event.ResourceVersion {
			return event.Message
		}
	}
	return ""
}
