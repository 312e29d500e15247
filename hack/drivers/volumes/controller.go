// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type identity struct {
	csi.UnimplementedIdentityServer
}

func (identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "0.1.0"}, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(s csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: s}}}
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE), service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}}, nil
}

// controller makes volumes and snapshots. Sizes are what was asked for, and bound nothing.
type controller struct {
	csi.UnimplementedControllerServer

	store *store
	node  string
}

func (c *controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, capability := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

func (c *controller) CreateVolume(_ context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	from := ""
	var err error
	switch source := r.GetVolumeContentSource(); {
	case source.GetSnapshot() != nil:
		from, err = path(c.store.snapshots, source.GetSnapshot().GetSnapshotId())
	case source.GetVolume() != nil:
		from, err = path(c.store.volumes, source.GetVolume().GetVolumeId())
	}
	if err != nil {
		return nil, said(err)
	}
	if err := c.store.create(c.store.volumes, r.GetName(), from); err != nil {
		return nil, said(err)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: r.GetName(), CapacityBytes: r.GetCapacityRange().GetRequiredBytes(), ContentSource: r.GetVolumeContentSource(),
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{nodeKey: c.node}}},
	}}, nil
}

func (c *controller) DeleteVolume(_ context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := remove(c.store.volumes, r.GetVolumeId()); err != nil {
		return nil, said(err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (c *controller) ValidateVolumeCapabilities(_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if _, err := path(c.store.volumes, r.GetVolumeId()); err != nil {
		return nil, said(err)
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: r.GetVolumeCapabilities()}}, nil
}

func (c *controller) ControllerExpandVolume(_ context.Context, r *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if _, err := path(c.store.volumes, r.GetVolumeId()); err != nil {
		return nil, said(err)
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, nil
}

func (c *controller) CreateSnapshot(_ context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	from, err := path(c.store.volumes, r.GetSourceVolumeId())
	if err != nil {
		return nil, said(err)
	}
	if err := c.store.create(c.store.snapshots, r.GetName(), from); err != nil {
		return nil, said(err)
	}
	at, err := path(c.store.snapshots, r.GetName())
	if err != nil {
		return nil, said(err)
	}
	info, err := os.Stat(at)
	if err != nil {
		return nil, said(err)
	}
	bytes, err := size(at)
	if err != nil {
		return nil, said(err)
	}
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{
		SnapshotId: r.GetName(), SourceVolumeId: r.GetSourceVolumeId(), SizeBytes: bytes,
		CreationTime: timestamppb.New(info.ModTime()), ReadyToUse: true,
	}}, nil
}

func (c *controller) DeleteSnapshot(_ context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := remove(c.store.snapshots, r.GetSnapshotId()); err != nil {
		return nil, said(err)
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// said is an error as CSI wants it.
func said(err error) error {
	switch {
	case errors.Is(err, errNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, errName):
		return status.Error(codes.InvalidArgument, err.Error())
	default:
		return status.Error(codes.Internal, err.Error())
	}
}
