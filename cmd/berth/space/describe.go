// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/report"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newDescribe(host *flags.Host) *cobra.Command {
	return &cobra.Command{
		Use:   "describe NAME",
		Short: "Print the details of a space",
		Long: `Print the details of a space: its spec in short, its conditions, what it uses of its
quota as bars, and its events on the host.`,
		Example:           "  berth space describe solar",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: host.Names("spaces", 1),
		RunE: host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			d := report.Described{Space: &v1alpha1.Space{}}
			if err := host.Get(cmd.Context(), client.ObjectKey{Name: args[0]}, d.Space); err != nil {
				return err
			}
			// Events of objects that are in no namespace are in this one.
			var events corev1.EventList
			d.EventsError = host.List(cmd.Context(), &events, client.InNamespace(metav1.NamespaceDefault), client.MatchingFields{
				"involvedObject.kind": "Space", "involvedObject.name": args[0],
			})
			d.Events = events.Items
			return report.Space(cmd.OutOrStdout(), d, report.StyleOf(os.Getenv), time.Now())
		}),
	}
}
