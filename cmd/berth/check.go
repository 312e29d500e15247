// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// actTimeout is how long a command waits by default.
const actTimeout = time.Minute

// checkInterval is the time between two attempts.
const checkInterval = time.Second

func newCheck() *cobra.Command {
	var timeout time.Duration
	var urls []string
	cmd := &cobra.Command{
		Use:   "check [KUBECONFIG...]",
		Short: "Check that spaces or other clusters are ready",
		Long: `Check that the cluster of each kubeconfig is ready. The command connects to the
URL in the kubeconfig, verifies the server's certificate, asks for the server's
readiness, and reads a namespace as the kubeconfig's user. It wakes a space that is
asleep.

With --url, it also checks that a URL answers with code 200, such as the readiness
endpoint of the operator.

The command retries until --timeout expires. It exits with code 1 if at least one
cluster or URL isn't ready.

In a cluster, 'helm test' runs this command in a pod.`,
		Example: "  berth check team-a.kubeconfig team-b.kubeconfig",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args)+len(urls) == 0 {
				return errors.New("nothing to check: name a kubeconfig, or a URL with --url")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			var failed []string
			for _, url := range urls {
				answer := "ready"
				if err := checkURL(ctx, url); err != nil {
					answer = err.Error()
					failed = append(failed, url)
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", url, answer)
			}
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
				return fmt.Errorf("%d of %d are not ready: %s", len(failed), len(args)+len(urls), strings.Join(failed, ", "))
			}
			return nil
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", actTimeout, "how long to retry")
	cmd.Flags().StringArrayVar(&urls, "url", nil, "a URL that must answer with code 200; repeat the flag for several")
	return cmd
}

// checkURL retries until a URL answers with code 200.
func checkURL(ctx context.Context, url string) (last error) {
	err := wait.PollUntilContextCancel(ctx, checkInterval, true, func(ctx context.Context) (bool, error) {
		asked := get(ctx, url)
		if asked == nil || last == nil || !late(ctx) {
			last = asked
		}
		return asked == nil, nil
	})
	if err != nil {
		return last
	}
	return nil
}

func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Timeout: actTimeout}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", response.Status)
	}
	return nil
}

// checkCluster retries until the cluster is ready, and returns a line with its version.
func checkCluster(ctx context.Context, path string) (answer string, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return "", err
	}
	config.Timeout = actTimeout // one request may have to wake the space
	config.QPS = -1             // the client's rate limiter reports the deadline error first and hides the real cause
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, checkInterval, true, func(ctx context.Context) (bool, error) {
		asked := ask(ctx, client)
		if asked == nil || last == nil || !late(ctx) {
			last = asked // a request that the deadline ends hides the cause, which the error before it has
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

// late reports whether the deadline has passed. It reads the clock, as connections and requests do, because the context
// can report the deadline a moment after them.
func late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// ask returns an error unless the cluster is ready and accepts the credentials. Readiness alone isn't enough: a space that
// sleeps is ready, too, and its readiness needs no credentials.
func ask(ctx context.Context, client kubernetes.Interface) error {
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("not ready: %w", err)
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{}); err != nil {
		return fmt.Errorf("read the namespace default: %w", err)
	}
	return nil
}
