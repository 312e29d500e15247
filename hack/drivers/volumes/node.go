// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nodeServer shows pods their volumes' directories.
type nodeServer struct {
	csi.UnimplementedNodeServer

	store *store
	node  string
}

func (n *nodeServer) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.node, AccessibleTopology: &csi.Topology{Segments: map[string]string{nodeKey: n.node}}}, nil
}

func (n *nodeServer) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (n *nodeServer) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	from, err := path(n.store.volumes, r.GetVolumeId())
	if err != nil {
		return nil, said(err)
	}
	target := r.GetTargetPath()
	if r.GetVolumeCapability().GetMount() == nil {
		return nil, status.Error(codes.InvalidArgument, "a volume is mounted: it is no device")
	}
	if err := os.Mkdir(target, 0o750); errors.Is(err, os.ErrExist) {
		if mounted(target) {
			return &csi.NodePublishVolumeResponse{}, nil
		}
	} else if err != nil {
		return nil, said(err)
	}
	if err := unix.Mount(from, target, "", unix.MS_BIND, ""); err != nil {
		return nil, said(err)
	}
	if r.GetReadonly() {
		if err := unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return nil, said(err)
		}
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *nodeServer) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	target := r.GetTargetPath()
	if err := unix.Unmount(target, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return nil, said(err)
	}
	// Not what is in it: that would be the volume's, if it were still there.
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, said(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// mounted reports whether something is mounted at a directory.
func mounted(target string) bool {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, target, 0, 0, &stat)
	return err == nil && stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}
