// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Snapshots is the schedule of a space's snapshots.
type Snapshots struct {
	To    string        // empty for the first destination
	Every time.Duration // 0 for none, -1 if the spec does not set it
	Keep  int           // 0 if the spec does not set it
	// Replicated means that the store is replicated to the same place.
	Replicated bool
}

func snapshotsOf(spec *v1alpha1.Snapshots) Snapshots {
	s := Snapshots{To: spec.To, Every: -1, Keep: int(spec.Keep), Replicated: spec.Replication == v1alpha1.ReplicationContinuous}
	if spec.IntervalSeconds != nil {
		s.Every = time.Duration(*spec.IntervalSeconds) * time.Second
	}
	return s
}

// leastSnapshotSeconds is the shortest interval, so that a machine does more than take snapshots. The schema of Space
// has the same limit, but does not cover the defaults in a configuration file.
const leastSnapshotSeconds = 60

// checkSnapshots rejects destinations that the admin does not allow. Snapshots are written with the credentials and the
// user of the platform, so a free choice would be dangerous.
func checkSnapshots(spec *v1alpha1.Snapshots, destinations []string, path *field.Path) (errs field.ErrorList) {
	every := spec.IntervalSeconds
	switch {
	case spec.To != "" && !slices.Contains(destinations, spec.To):
		errs = append(errs, field.Forbidden(path.Child("to"), "the platform writes snapshots to "+named(destinations)+"; allow another URL with --snapshot-also-to"))
	case len(destinations) == 0 && (spec.Keep != 0 || every != nil && *every != 0 || spec.Replication == v1alpha1.ReplicationContinuous):
		errs = append(errs, field.Forbidden(path, "the platform has no storage for snapshots; start Berth with --snapshot-to"))
	}
	if every != nil && *every != 0 && *every < leastSnapshotSeconds {
		errs = append(errs, field.Invalid(path.Child("intervalSeconds"), *every, "must be 0, or 60 or more"))
	}
	if !slices.Contains([]v1alpha1.Replication{"", v1alpha1.ReplicationNone, v1alpha1.ReplicationContinuous}, spec.Replication) { // in spaceDefaults
		errs = append(errs, field.NotSupported(path.Child("replication"), spec.Replication, []v1alpha1.Replication{v1alpha1.ReplicationNone, v1alpha1.ReplicationContinuous}))
	}
	if spec.Keep < 0 {
		errs = append(errs, field.Invalid(path.Child("keep"), spec.Keep, "must be 1 or more"))
	}
	return errs
}

func named(destinations []string) string {
	if len(destinations) == 0 {
		return "no place"
	}
	return strings.Join(destinations, ", ")
}
