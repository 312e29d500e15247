// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/snapshot"
)

// Config says what a platform runs, and how. Its functions may be called concurrently.
type Config struct {
	ProcessConfig
	Host HostConfig

	// Listen is HOST:PORT of the TLS listener that serves all APIs. Advertise is its URL as clients reach it,
	// https://HOST or https://HOST:PORT; the address of Listen if empty.
	Listen, Advertise string
	// MetricsListen is HOST:PORT of metrics and health, over plain HTTP; they are not served if it is empty.
	MetricsListen string

	// DedicatedCommand returns a command that calls [RunDedicated] with what is in the file.
	DedicatedCommand func(file string) *exec.Cmd
	// RequireOne ends the platform if none of the shared Spaces starts.
	RequireOne bool
	// SpacesMax is how many shared spaces are awake at once, 0 for any number.
	SpacesMax int

	// PlatformName is the name by which Space objects on the host say that they are for this platform. Default:
	// [v1alpha1.DefaultPlatformName].
	PlatformName string
	// DedicatedMax is how many dedicated spaces there may be: each takes hundreds of MiB.
	DedicatedMax int
	// SpaceRole is the ClusterRole of the spaces' accounts on the host. If it is empty, the platform writes a Role for each.
	SpaceRole string
	// KubeconfigSecrets is the namespace of the host for Secrets with the spaces' kubeconfigs; none are written if empty.
	KubeconfigSecrets string
	// ArgoCDNamespace is that of Argo CD on the host, for Secrets by which it knows the spaces as clusters; none are written if empty.
	ArgoCDNamespace string

	Snapshots Snapshots
	Version   Version
	Logger    klog.Logger

	// Progress reports what the platform does, for people. Serving is called once, when requests are served; Started
	// once, when all of Spaces have been tried. Each may be nil.
	Progress         func(format string, args ...any)
	Serving, Started func(*Platform)
}

// ProcessConfig is what each process of a platform is told: its own, and those of dedicated spaces.
type ProcessConfig struct {
	// DataDir is the directory that holds all state on this machine. One platform uses it at a time.
	DataDir string
	// Spaces are spaces whose objects the platform has on the host be like these, before it starts. Each needs a name only.
	// All other spaces whose objects name the platform are served, too.
	Spaces []v1alpha1.Space
	// SpaceDefaults are what spaces are that don't say otherwise.
	SpaceDefaults v1alpha1.SpaceSpec
	// IngressAnnotations are the keys of annotations that are synced with Ingresses. ReservedLabels are domains, prefixes that
	// end in a dot, or keys of labels that controllers of the host act on.
	IngressAnnotations, ReservedLabels []string
	// ShowNodeAddresses passes on the addresses of nodes in the statuses of Services, Ingresses, and Gateways.
	ShowNodeAddresses bool
	// IdleAfter is how long a space whose spec says nothing of it is idle before it is put to sleep, 0 for never.
	IdleAfter time.Duration

	Pods   Pods
	Traces Traces

	specs *specs
}

// Version is what metrics and traces say runs.
type Version struct{ Berth, Kubernetes string }

// Snapshots says where and how often to take snapshots.
type Snapshots struct {
	To    string // URL of a directory or of object storage; none are taken on a schedule if empty
	Every time.Duration
	Keep  int // of each space
}

// leastSnapshotInterval keeps snapshots from being all that a machine does.
const leastSnapshotInterval = time.Minute

// FieldError says what is wrong with the value of a field of the configuration. Field is in kebab case, as flags are.
type FieldError struct {
	Field, Value string
	Err          error
}

// Error implements error.
func (e *FieldError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %v", e.Field, e.Err)
	}
	return fmt.Sprintf("%s=%s: %v", e.Field, e.Value, e.Err)
}

// Unwrap returns the reason.
func (e *FieldError) Unwrap() error { return e.Err }

func fieldError(field string, value any, format string, args ...any) error {
	return &FieldError{Field: field, Value: fmt.Sprint(value), Err: fmt.Errorf(format, args...)}
}

// Complete fills in defaults, and refuses values that mean nothing. An error about one is a [*FieldError], or about what is
// said of spaces a [field.ErrorList]'s aggregate.
func (c *Config) Complete() error {
	c.Advertise = strings.TrimSuffix(c.Advertise, "/")
	if c.Progress == nil {
		c.Progress = func(string, ...any) {}
	}
	c.PlatformName = cmp.Or(c.PlatformName, v1alpha1.DefaultPlatformName)
	if problems := validation.IsDNS1123Label(c.PlatformName); len(problems) > 0 {
		return fieldError("platform-name", c.PlatformName, "%s", problems[0])
	}
	switch {
	case c.IdleAfter < 0:
		return fieldError("idle-after", c.IdleAfter, "want a time, or 0 for never")
	case c.DedicatedMax < 0:
		return fieldError("dedicated-max", c.DedicatedMax, "want a number, or 0 for none")
	case c.SpacesMax < 0:
		return fieldError("spaces-max", c.SpacesMax, "want a number, or 0 for no bound")
	}
	if err := checkAdvertise(c.Advertise); err != nil {
		return fieldError("advertise", c.Advertise, "%w", err)
	}
	if problems := validation.IsDNS1123Label(c.KubeconfigSecrets); c.KubeconfigSecrets != "" && len(problems) > 0 {
		return fieldError("kubeconfig-secrets", c.KubeconfigSecrets, "want a namespace: %s", problems[0])
	}
	if problems := validation.IsDNS1123Label(c.ArgoCDNamespace); c.ArgoCDNamespace != "" && len(problems) > 0 {
		return fieldError("argocd-namespace", c.ArgoCDNamespace, "want a namespace: %s", problems[0])
	}
	for _, check := range []func() error{c.Snapshots.check, c.Traces.check, c.Pods.check} {
		if err := check(); err != nil {
			return err
		}
	}
	return c.complete()
}

func (c *ProcessConfig) complete() (err error) {
	c.specs, err = newSpecs(c)
	return err
}

func checkAdvertise(advertise string) error {
	if advertise == "" {
		return nil
	}
	u, err := url.Parse(advertise)
	if err == nil && (u.Scheme != "https" || u.Hostname() == "" || advertise != "https://"+u.Host) {
		err = errors.New("want https://HOST or https://HOST:PORT")
	}
	return err
}

func (s *Snapshots) check() error {
	switch {
	case s.To == "":
		return nil
	case s.Every < leastSnapshotInterval:
		return fieldError("snapshot-every", s.Every, "want %s or more", leastSnapshotInterval)
	case s.Keep < 1:
		return fieldError("snapshot-keep", s.Keep, "want 1 or more")
	}
	if _, err := snapshot.Open(s.To); err != nil {
		return fieldError("snapshot-to", "", "%w", err)
	}
	return nil
}

// Loopback is the address that kubeconfigs lead to if Listen is all of the machine's addresses, and Advertise is empty.
const Loopback = "127.0.0.1"

// ListensEverywhere reports whether Listen is all of the machine's addresses, so that it does not say by which of them
// clients come.
func (c *Config) ListensEverywhere() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	ip := net.ParseIP(host)
	return err != nil || host == "" || ip != nil && ip.IsUnspecified()
}
