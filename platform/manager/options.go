// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"os/exec"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/snapshot"
)

// Options configure how spaces run. Functions may be called concurrently.
type Options struct {
	process.Options

	// DedicatedCommand returns a command that calls [spaceprocess.Run] with the configuration in the file.
	DedicatedCommand func(file string) *exec.Cmd
	// DedicatedPods, if configured, runs dedicated spaces in pods, instead of processes of DedicatedCommand.
	DedicatedPods DedicatedPods
	// RequireOne ends the platform if none of the shared Spaces starts.
	RequireOne bool
	// SpacesMax is the maximum number of shared spaces that are awake at once; 0 means no limit.
	SpacesMax int

	// Shard is the name of the shard that this process is. If it is empty, the platform has one process, and no shards.
	Shard string
	// PlatformName is the name by which Space objects on the host refer to this platform. Default:
	// [v1alpha1.DefaultPlatformName].
	PlatformName string
	// DedicatedMax is the maximum number of dedicated spaces. Each takes hundreds of MiB of memory.
	DedicatedMax int
	// SpaceRole is the ClusterRole for the spaces' accounts on the host. If it is empty, the platform writes a Role for
	// each space.
	SpaceRole string
	// KubeconfigSecrets is the namespace on the host for Secrets with the spaces' kubeconfigs. If it is empty, none are
	// written.
	KubeconfigSecrets string
	// StoreSecrets is the namespace on the host with the Secrets that spec.store.secretName of spaces names. If it is empty, spaces
	// can't have stores in database servers.
	StoreSecrets string
	// ArgoCDNamespace is the namespace of Argo CD on the host, for cluster Secrets of the spaces. If it is empty, none
	// are written.
	ArgoCDNamespace string

	Snapshots Snapshots
	Version   Version
	Logger    klog.Logger
	// Progress reports progress to people. It may be nil.
	Progress func(format string, args ...any)
}

// Version is the version that metrics and traces report.
type Version struct{ Berth, Kubernetes string }

// Snapshots configures where and how often snapshots are taken.
type Snapshots struct {
	To string // URL of a directory or of object storage; if empty, there are no scheduled snapshots
	// AlsoTo are further URLs that spec.snapshots.to of a space may name.
	AlsoTo []string
	Every  time.Duration
	Keep   int // for each space
}

// leastSnapshotInterval is the shortest interval, so that a machine does more than take snapshots.
const leastSnapshotInterval = time.Minute

// Complete sets defaults, and rejects invalid values. The error is a [*fielderror.Error], or for the specs of spaces
// the aggregate of a [field.ErrorList].
func (o *Options) Complete() error {
	if o.Progress == nil {
		o.Progress = func(string, ...any) {}
	}
	o.PlatformName = cmp.Or(o.PlatformName, v1alpha1.DefaultPlatformName)
	if problems := validation.IsDNS1123Label(o.PlatformName); len(problems) > 0 {
		return fielderror.New("platform-name", o.PlatformName, "%s", problems[0])
	}
	switch {
	case o.IdleAfter < 0:
		return fielderror.New("idle-after", o.IdleAfter, "must be a duration, or 0 for never")
	case o.DedicatedMax < 0:
		return fielderror.New("dedicated-max", o.DedicatedMax, "must be 0 or more")
	case o.SpacesMax < 0:
		return fielderror.New("spaces-max", o.SpacesMax, "must be 0 or more; 0 means no limit")
	}
	if problems := validation.IsDNS1123Label(o.KubeconfigSecrets); o.KubeconfigSecrets != "" && len(problems) > 0 {
		return fielderror.New("kubeconfig-secrets", o.KubeconfigSecrets, "must be the name of a namespace: %s", problems[0])
	}
	if problems := validation.IsDNS1123Label(o.StoreSecrets); o.StoreSecrets != "" && len(problems) > 0 {
		return fielderror.New("store-secrets", o.StoreSecrets, "must be the name of a namespace: %s", problems[0])
	}
	if problems := validation.IsDNS1123Label(o.ArgoCDNamespace); o.ArgoCDNamespace != "" && len(problems) > 0 {
		return fielderror.New("argocd-namespace", o.ArgoCDNamespace, "must be the name of a namespace: %s", problems[0])
	}
	if err := o.Snapshots.check(); err != nil {
		return err
	}
	if o.SnapshotDestinations = nil; o.Snapshots.To != "" {
		o.SnapshotDestinations = append([]string{o.Snapshots.To}, o.Snapshots.AlsoTo...)
	}
	return o.Options.Complete()
}

func (s *Snapshots) check() error {
	switch {
	case s.To == "" && len(s.AlsoTo) > 0:
		return fielderror.New("snapshot-also-to", s.AlsoTo[0], "needs --snapshot-to, for spaces without spec.snapshots.to")
	case s.To == "":
		return nil
	case s.Every < leastSnapshotInterval:
		return fielderror.New("snapshot-every", s.Every, "must be %s or more", leastSnapshotInterval)
	case s.Keep < 1:
		return fielderror.New("snapshot-keep", s.Keep, "must be 1 or more")
	}
	if _, err := snapshot.Open(s.To); err != nil {
		return fielderror.New("snapshot-to", "", "%w", err)
	}
	for _, to := range s.AlsoTo {
		if _, err := snapshot.Open(to); err != nil {
			return fielderror.New("snapshot-also-to", "", "%w", err)
		}
	}
	return nil
}
