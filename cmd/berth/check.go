// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// checkInterval is how long to wait before what did not answer is asked again.
const checkInterval = time.Second

func newCheck() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check KUBECONFIG...",
		Short: "Check that the clusters of kubeconfigs answer",
		Long: `Check that each cluster is there at the URL of its kubeconfig, shows a certificate
that the kubeconfig trusts, lets its user in, and says that it is ready. What does
not answer is asked again until the timeout. A space that sleeps is woken.

'helm test' runs it in a pod.`,
		Example: "  berth check team-a.kubeconfig team-b.kubeconfig",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			var failed []string
			for _, path := range args {
				name := strings.TrimSuffix(filepath.Base(path), ".kubeconfig")
				answer, err := checkCluster(ctx, path)
				if err != nil {
					answer = err.Error()
					failed = append(failed, name)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", name, answer)
			}
			if len(failed) > 0 {
				return fmt.Errorf("%d of %d do not answer: %s", len(failed), len(args), strings.Join(failed, ", "))
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", actTimeout, "how long to ask again what does not answer")
	return cmd
}

// checkCluster asks a cluster until it answers well, and says what it runs.
func checkCluster(ctx context.Context, path string) (answer string, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return "", err
	}
	config.Timeout = actTimeout // one request may have to wake the space
	config.QPS = -1             // it asks seldom, and a limiter foretells the deadline in place of the reason
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, checkInterval, true, func(ctx context.Context) (bool, error) {
		asked := ask(ctx, client)
		if asked == nil || last == nil || !late(ctx) {
			last = asked // what is cut off says less than what was said before
		}
		return asked == nil, nil
	})
	if err != nil {
		return "", last
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	return "ready, Kubernetes " + version.GitVersion, nil
}

// late says that the deadline is behind us, by the clock that dials and requests
// go by: the context itself may say so a moment after them.
func late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// ask is an error unless the cluster is ready and lets us in. Readiness alone
// says little: a space that sleeps is ready, too, and tells anybody.
func ask(ctx context.Context, client kubernetes.Interface) error {
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("it is not ready: %w", err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("read its namespace default: %w", err)
	}
	return nil
}
