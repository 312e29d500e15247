// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/client/connection"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/control"
)

// actTimeout is how long a command waits for a space by default.
const actTimeout = time.Minute

func sleepCommand(host *flags.Host, name string) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "sleep SPACE...",
		Short: "Put spaces to sleep",
		Long: `Put spaces to sleep, even if they are in use. Berth stops their API servers and
controllers, and closes their open requests. Their pods continue to run. A request, a
change to the space's host objects, or a timer of the space (such as the next run of a
CronJob) wakes it again.

The command waits until the syncer has finished its current work and nothing has been
written to the space for one second. After ten seconds, writes don't delay it anymore.

The command needs a running Berth on this machine, or in this container. 'berth sleep'
and 'berth space sleep' are the same command.`,
		Example:           "  " + name + " demo",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: host.Names("spaces", 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, space := range args {
				if err := act(cmd.Context(), host, space, "sleep", timeout); err != nil {
					return explainSocket(cmd, host, err, "put a space to sleep", "berth sleep "+space)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "space/%s asleep\n", space)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", actTimeout, "how long to wait for each space")
	return cmd
}

func wakeCommand(host *flags.Host, name string) *cobra.Command {
	var timeout time.Duration
	target := target{host: host}
	cmd := &cobra.Command{
		Use:   "wake SPACE...",
		Short: "Wake spaces",
		Long: `Wake spaces, and wait until they serve requests. A space that failed to start is
started again at once.

If no Berth runs on this machine, or in this container, the command connects to each
space as 'berth space connect' does, and sends a request, which wakes the space.
'berth wake' and 'berth space wake' are the same command.`,
		Example:           "  " + name + " demo",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: host.Names("spaces", 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, space := range args {
				err := act(cmd.Context(), host, space, "wake", timeout)
				if errors.Is(err, control.ErrNotRunning) && !host.Here() {
					if failed := wakeByRequest(cmd, &target, space, timeout); failed != nil {
						err = fmt.Errorf("wake space %s by a request, because %w: %w", space, err, failed)
					} else {
						err = nil
					}
				}
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "space/%s awake\n", space)
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", actTimeout, "how long to wait for each space")
	cmd.Flags().StringVar(&target.namespace, "secret-namespace", "", "host namespace of the Secret with the kubeconfig (default: all are searched)")
	_ = cmd.RegisterFlagCompletionFunc("secret-namespace", host.Namespaces())
	return cmd
}

// act asks the Berth on this machine, unless flags say that another host is meant.
func act(ctx context.Context, host *flags.Host, space, verb string, timeout time.Duration) error {
	return socket(host, func(client *control.Client) error {
		return client.Do(ctx, http.MethodPost, fmt.Sprintf("/spaces/%s/%s?timeout=%s", url.PathEscape(space), verb, timeout), nil)
	})
}

// socket calls do with a client of the Berth on this machine. If flags say that another host is meant, it returns
// [control.ErrNotRunning].
func socket(host *flags.Host, do func(*control.Client) error) error {
	if host.Elsewhere() {
		return control.ErrNotRunning
	}
	return do(control.NewClient(host.DataDir))
}

// wakeByRequest wakes a space as any client does.
func wakeByRequest(cmd *cobra.Command, t *target, space string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done after %s; see 'berth space describe %s'", timeout, space))
	defer cancel()
	options, err := t.options(cmd, space)
	if err != nil {
		return err
	}
	open, err := connection.Open(ctx, options)
	if err != nil {
		return t.explain(err, options)
	}
	defer open.Close()
	config, err := open.Config.REST()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	return progress.Await(ctx, cmd.ErrOrStderr(), "space/"+space, func(ctx context.Context) (bool, string, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err == nil, "", err
	})
}

// explainSocket adds to the error that no Berth runs here where to run a command instead.
func explainSocket(cmd *cobra.Command, host *flags.Host, err error, what, command string) error {
	if !errors.Is(err, control.ErrNotRunning) {
		return err
	}
	where := "kubectl --namespace NAMESPACE exec POD"
	if client, failed := host.Open(cmd); failed == nil {
		if pod, failed := connection.FindPod(cmd.Context(), client); failed == nil {
			where = fmt.Sprintf("kubectl --namespace %s exec %s", pod.Namespace, pod.Name)
		}
	}
	return fmt.Errorf("%w; the host's API has no way to %s, so run it in the pod of Berth: %s -- %s", err, what, where, command)
}
