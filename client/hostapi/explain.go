// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostapi

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Explain adds to an error of a host's API what the caller can do about it. server is the URL of the host, for messages.
func Explain(err error, server string) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case errors.As(err, &status):
		return explainStatus(err, status.Status(), server)
	case clientcmd.IsEmptyConfig(err):
		return errors.New("no host cluster is set: use --kubeconfig or $KUBECONFIG, or start one on this machine with 'berth up'")
	}
	failed, isURL := errors.AsType[*url.Error](err)
	network, isNetwork := errors.AsType[net.Error](err)
	if isURL && isNetwork && strings.HasPrefix(failed.URL, server) {
		if network.Timeout() {
			return fmt.Errorf("%w; check that the host cluster is reachable, or choose another one with --kubeconfig or --context", err)
		}
		return fmt.Errorf("%w; start the host cluster, or choose another one with --kubeconfig or --context", err)
	}
	return err
}

func explainStatus(err error, status metav1.Status, server string) error {
	resource := v1alpha1.GroupVersion.Group
	if d := status.Details; d != nil && d.Kind != "" {
		resource = strings.TrimSuffix(d.Kind+"."+d.Group, ".")
	}
	switch {
	case IsMissingType(err):
		return fmt.Errorf("the cluster %s doesn't serve %s: install Berth there with its Helm chart, or choose another cluster with --kubeconfig or --context", server, resource)
	case apierrors.IsForbidden(err) && strings.Contains(status.Message, `" cannot `) && strings.Contains(status.Message, ` resource "`): // by RBAC, and not by admission
		return fmt.Errorf("%w; ask an admin of the host for this right, for example by a ClusterRole with %s%s", err, resource, verbOf(status.Message))
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: the host %s rejects the credentials of your kubeconfig; log in again, or choose others with --kubeconfig, --context, or --user", err, server)
	}
	return err
}

// IsMissingType reports whether an error of a server means that it has no such resource, and not only no such object. It then knows no
// name, and answers without one.
func IsMissingType(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	s := status.Status()
	return s.Details == nil || s.Details.Name == "" || s.Message == "the server could not find the requested resource"
}

// verbOf returns the verb that RBAC refuses, for a message.
func verbOf(message string) string {
	if _, after, found := strings.Cut(message, `" cannot `); found {
		if verb, _, found := strings.Cut(after, " "); found {
			return " and the verb " + verb
		}
	}
	return ""
}
