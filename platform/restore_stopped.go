// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"

	"github.com/berth-dev/berth/snapshot"
)

// RestoreStopped restores a space of a data directory that no platform uses, from a bucket's URL, and returns the names of
// the space and of the snapshot.
func RestoreStopped(ctx context.Context, dataDir, name, from string) (space, restored string, err error) {
	id, err := snapshot.ParseID(name)
	if err != nil {
		return "", "", err
	}
	bucket, err := snapshot.Open(from)
	if err != nil {
		return "", "", err
	}
	lock, err := lockDataDir(dataDir)
	if err != nil {
		return "", "", err
	}
	defer lock.Close()
	if id, err = bucket.Find(ctx, id); err != nil {
		return "", "", err
	}
	return id.Space, id.String(), snapshot.Replace(ctx, bucket, id, spacesDir(dataDir), scratchDir(dataDir))
}
