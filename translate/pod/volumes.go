// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/translate"
)

// volumes translates v's volumes. Sources that [Check] refuses come out as
// an empty directory, so that the rest of the pod stays well-formed.
func volumes(s translate.Space, v *corev1.Pod) []corev1.Volume {
	var out []corev1.Volume
	for i := range v.Spec.Volumes {
		volume := v.Spec.Volumes[i].DeepCopy()
		rename := func(ref *string) { *ref = s.HostName(v.Namespace, *ref, translate.LimitSubdomain) }
		visitVolume(volume, rename, rename)
		source := volume.VolumeSource
		volume.VolumeSource = corev1.VolumeSource{
			ConfigMap: source.ConfigMap, Secret: source.Secret, EmptyDir: source.EmptyDir,
			DownwardAPI: source.DownwardAPI, Projected: projected(s, v, volume.Name, source.Projected),
			PersistentVolumeClaim: source.PersistentVolumeClaim, Image: source.Image,
		}
		if volume.DownwardAPI != nil {
			downwardFiles(volume.DownwardAPI.Items)
		}
		if claim := volume.PersistentVolumeClaim; claim != nil {
			claim.ClaimName = s.HostName(v.Namespace, claim.ClaimName, translate.LimitSubdomain)
		}
		if source.Ephemeral != nil {
			// The claim itself is made in the space, by its controller.
			volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{
				ClaimName: s.HostName(v.Namespace, claimName(v, &v.Spec.Volumes[i]), translate.LimitSubdomain),
			}
		}
		if volume.VolumeSource == (corev1.VolumeSource{}) {
			volume.EmptyDir = &corev1.EmptyDirVolumeSource{}
		}
		out = append(out, *volume)
	}
	return out
}

// claimName is the claim behind a volume of v, empty for other kinds.
func claimName(v *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.Ephemeral != nil:
		return v.Name + "-" + volume.Name
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	default:
		return ""
	}
}

// TokenRequest is a service account token that a pod's projected volume asks for.
type TokenRequest struct {
	// Key of the token in the pod's token secret on the host.
	Key      string
	Audience string // empty: the space's API server
	// ExpirationSeconds asked for; nil means the API's default of an hour.
	ExpirationSeconds *int64
}

// TokenRequests lists the tokens that v's volumes project, in order.
func TokenRequests(v *corev1.Pod) []TokenRequest {
	var out []TokenRequest
	for _, volume := range v.Spec.Volumes {
		if volume.Projected == nil {
			continue
		}
		for i, source := range volume.Projected.Sources {
			if t := source.ServiceAccountToken; t != nil {
				out = append(out, TokenRequest{Key: tokenKey(volume.Name, i), Audience: t.Audience, ExpirationSeconds: t.ExpirationSeconds})
			}
		}
	}
	return out
}

// tokenKey is unique in a pod: volume names are unique in it, and hold no dot.
func tokenKey(volume string, source int) string { return fmt.Sprintf("%s.%d", volume, source) }

// projected keeps the sources that may be projected, with tokens taken from the
// pod's token secret: the host's kubelet can only get tokens of the host's API.
func projected(s translate.Space, v *corev1.Pod, volume string, p *corev1.ProjectedVolumeSource) *corev1.ProjectedVolumeSource {
	if p == nil {
		return nil
	}
	out := &corev1.ProjectedVolumeSource{DefaultMode: p.DefaultMode, DefaultUser: p.DefaultUser}
	for i, source := range p.Sources {
		kept := corev1.VolumeProjection{Secret: source.Secret, ConfigMap: source.ConfigMap, DownwardAPI: source.DownwardAPI}
		if kept.DownwardAPI != nil {
			downwardFiles(kept.DownwardAPI.Items)
		}
		if t := source.ServiceAccountToken; t != nil {
			kept.Secret = &corev1.SecretProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: s.TokenSecretName(v.Namespace, v.Name)},
				Items:                []corev1.KeyToPath{{Key: tokenKey(volume, i), Path: t.Path, User: t.User}},
			}
		}
		if kept != (corev1.VolumeProjection{}) {
			out.Sources = append(out.Sources, kept)
		}
	}
	return out
}

func downwardFiles(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			items[i].FieldRef.FieldPath = fieldPath(items[i].FieldRef.FieldPath)
		}
	}
}

// visitVolume calls back with each name of a config map and of a secret that
// the volume takes from the tenant; the callbacks may change it.
func visitVolume(v *corev1.Volume, configMap, secret func(*string)) {
	if v.ConfigMap != nil {
		configMap(&v.ConfigMap.Name)
	}
	if v.Secret != nil {
		secret(&v.Secret.SecretName)
	}
	if v.Projected == nil {
		return
	}
	for i := range v.Projected.Sources {
		if ref := v.Projected.Sources[i].ConfigMap; ref != nil {
			configMap(&ref.Name)
		}
		if ref := v.Projected.Sources[i].Secret; ref != nil {
			secret(&ref.Name)
		}
	}
}
