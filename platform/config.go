// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
)

// Config says what a platform runs, and how. Its functions may be called concurrently.
type Config struct {
	// DataDir is the directory that holds all state on this machine. One platform uses it at a time.
	DataDir string
	Host    HostConfig

	// Listen is HOST:PORT of the TLS listener that serves all APIs. Advertise is its URL as clients reach it,
	// https://HOST or https://HOST:PORT; the address of Listen if empty.
	Listen, Advertise string
	// MetricsListen is HOST:PORT of metrics and health, over plain HTTP; they are not served if it is empty.
	MetricsListen string

	// Spaces share this process; Dedicated have a process each, which DedicatedCommand returns. The platform starts them,
	// and creates those that do not exist yet. Spaces of earlier runs are served, too.
	Spaces, Dedicated []string
	DedicatedCommand  func(d DedicatedSpace) *exec.Cmd
	// RequireOne ends the platform if none of Spaces starts.
	RequireOne bool
	// IdleAfter is how long a space is idle before it is put to sleep, 0 for never. SpacesMax is how many of Spaces and of
	// those of earlier runs are awake at once, 0 for any number.
	IdleAfter time.Duration
	SpacesMax int

	// SpaceRole is the ClusterRole of the spaces' accounts on the host. If it is empty, the platform writes a Role for each.
	SpaceRole string
	// KubeconfigSecrets is the namespace of the host for Secrets with the spaces' kubeconfigs; none are written if empty.
	KubeconfigSecrets string

	Spec      SpaceConfig
	Pods      Pods
	Snapshots Snapshots
	Traces    Traces
	Version   Version
	Logger    klog.Logger

	// Progress reports what the platform does, for people. Serving is called once, when requests are served; Started
	// once, when all of Spaces and Dedicated have been tried. Each may be nil.
	Progress         func(format string, args ...any)
	Serving, Started func(*Platform)
}

// SpaceConfig is what the configuration says of spaces. The functions return what holds for the space of a name.
type SpaceConfig struct {
	Sync      syncer.Options // NodeLabels included
	Placement func(space string) translate.Placement
	Limits    func(space string) bounds.Limits
	Settings  func(space string) translate.Settings
	// ClosedRanges are address ranges that spaces' pods must not reach, besides private and special ones and those that
	// the host says are of its services, pods, and nodes.
	ClosedRanges []netip.Prefix
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

// Complete removes duplicates, and refuses values that mean nothing. An error about one is a [*FieldError].
func (c *Config) Complete() error {
	slices.Sort(c.Dedicated)
	c.Dedicated = slices.Compact(c.Dedicated)
	var once []string
	for _, name := range c.Spaces {
		if !slices.Contains(once, name) && !slices.Contains(c.Dedicated, name) {
			once = append(once, name)
		}
	}
	c.Spaces = once
	c.Advertise = strings.TrimSuffix(c.Advertise, "/")
	if c.Progress == nil {
		c.Progress = func(string, ...any) {}
	}
	switch {
	case c.IdleAfter < 0:
		return fieldError("idle-after", c.IdleAfter, "want a time, or 0 for never")
	case c.SpacesMax < 0:
		return fieldError("spaces-max", c.SpacesMax, "want a number, or 0 for no bound")
	}
	if err := checkAdvertise(c.Advertise); err != nil {
		return fieldError("advertise", c.Advertise, "%w", err)
	}
	if problems := validation.IsDNS1123Label(c.KubeconfigSecrets); c.KubeconfigSecrets != "" && len(problems) > 0 {
		return fieldError("kubeconfig-secrets", c.KubeconfigSecrets, "want a namespace: %s", problems[0])
	}
	for _, check := range []func() error{c.Snapshots.check, c.Traces.check, c.Pods.check} {
		if err := check(); err != nil {
			return err
		}
	}
	for field, names := range map[string][]string{"space": c.Spaces, "dedicated": c.Dedicated} {
		for _, name := range names {
			if err := isolation.CheckSpaceName(name); err != nil {
				return fieldError(field, "", "%w", err)
			}
		}
	}
	return nil
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
