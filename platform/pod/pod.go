// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod runs the process of a dedicated space as a pod: a StatefulSet with one replica and a volume, unless its
// store is in a database server, a Service, and a Secret with the configuration of the process, in Berth's own namespace on the host. The manager calls it. It
// reads no Secret but that of a pod which another shard has managed, and does not depend on what the process does.
package pod

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/translate"
)

const (
	// Label is on all objects of a dedicated space's pod. Its value is the name of the space.
	Label = translate.Domain + "/dedicated"
	// SecretType is the type of the Secrets. The type of a Secret is immutable, so no other Secret can become one of
	// these.
	SecretType corev1.SecretType = translate.Domain + "/dedicated"
	// annotationConfig replaces the pod when its configuration changes.
	annotationConfig = translate.Domain + "/configuration"

	// apiPort and commandsPort are the ports of the pods.
	apiPort, commandsPort = 7445, 7446
	// DataDir is the mount path of the pod's volume.
	DataDir = "/data"
	// volumeName is the name in the template of the volume with the Secret.
	volumeName = "configuration"

	fieldOwner = "berth"
	// maxName is the maximum length of names, so that the host can append to the name of a StatefulSet in the labels of
	// its pods.
	maxName = 52
)

// Listen returns the addresses at which the process in a pod listens.
func Listen() dedicated.Addresses {
	return dedicated.Addresses{API: ":" + strconv.Itoa(apiPort), Commands: ":" + strconv.Itoa(commandsPort)}
}

// ReadTemplate reads the template of the spaces' StatefulSets. It must have a namespace, and its pod must have a volume
// named configuration for the Secret.
func ReadTemplate(file string) (*appsv1.StatefulSet, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the template of dedicated spaces' pods: %w", err)
	}
	template := &appsv1.StatefulSet{}
	if err := yaml.UnmarshalStrict(data, template); err != nil {
		return nil, fmt.Errorf("read the template of dedicated spaces' pods: %s: %w", file, err)
	}
	switch {
	case template.Namespace == "":
		err = errors.New("metadata.namespace is missing")
	case len(template.Spec.Template.Spec.Containers) != 1:
		err = errors.New("spec.template.spec.containers: must have one container")
	case !slices.ContainsFunc(template.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volumeName && v.Secret != nil }):
		err = fmt.Errorf("spec.template.spec.volumes: there is none named %s of a Secret", volumeName)
	}
	if err != nil {
		return nil, fmt.Errorf("read the template of dedicated spaces' pods: %s: %w", file, err)
	}
	return template, nil
}

// Pods are the pods of a platform's dedicated spaces.
type Pods struct {
	Host     client.Client
	Platform string
	Template *appsv1.StatefulSet
}

// nameSuffix is the suffix of the objects' names. The Secrets with credentials of spaces have another one, so that the
// names never collide.
const nameSuffix = "-dedicated"

// Name returns the name of the objects of a space, which is unique on the host.
func Name(space string) string {
	plain := translate.HostNamespacePrefix + space + nameSuffix
	if len(plain) <= maxName && !strings.Contains(plain, "--") {
		return plain
	}
	return translate.Hashed(plain, maxName, "dedicated", space)
}

func (p *Pods) meta(space string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.Template.Namespace, Name: Name(space), Labels: p.labels(space)}
}

func (p *Pods) labels(space string) map[string]string {
	return map[string]string{Label: space, translate.LabelPlatform: p.Platform}
}

// Apply creates or updates the objects of a space. files are in the directory of its process. The pod is replaced if
// digest or the template has changed; the files may change while it runs. claims are the volume claims with which the
// objects were first created, because they are immutable. Without claims, the pod has empty directories in place of the
// volumes, and may run on any node. Apply returns the addresses of the pod, even if existing objects can't be updated.
func (p *Pods) Apply(ctx context.Context, space string, files map[string][]byte, digest string, claims []corev1.PersistentVolumeClaim) (at dedicated.Addresses, err error) {
	service := p.service(space)
	for _, o := range []client.Object{service, p.secret(space, files), p.statefulSet(space, digest, claims)} {
		//nolint:staticcheck // client.Apply wants generated apply configurations, which say the same at greater length
		if err := p.Host.Patch(ctx, o, client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return at, fmt.Errorf("apply %s %s of space %s: %w", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), space, err)
		}
		if o == service {
			to := func(port int) string { return net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(port)) }
			at = dedicated.Addresses{API: to(apiPort), Commands: to(commandsPort)}
		}
	}
	return at, nil
}

func (p *Pods) service(space string) *corev1.Service {
	port := func(name string, number int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number, TargetPort: intstr.FromInt32(number)}
	}
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: p.meta(space),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: p.labels(space), PublishNotReadyAddresses: true, // the platform checks the pod itself
			Ports: []corev1.ServicePort{port("api", apiPort), port("commands", commandsPort)},
		},
	}
}

func (p *Pods) secret(space string, files map[string][]byte) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: p.meta(space), Type: SecretType, Data: files}
}

func (p *Pods) statefulSet(space, digest string, claims []corev1.PersistentVolumeClaim) *appsv1.StatefulSet {
	set := p.Template.DeepCopy()
	labels := maps.Clone(set.Labels)
	set.TypeMeta, set.ObjectMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}, p.meta(space)
	set.Spec.VolumeClaimTemplates, set.Status = claims, appsv1.StatefulSetStatus{}
	for key, value := range labels {
		if _, own := set.Labels[key]; !own {
			set.Labels[key] = value
		}
	}
	set.Spec.Replicas, set.Spec.ServiceName = ptr.To[int32](1), set.Name
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: p.labels(space)}
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement // otherwise, a pod that never becomes ready would not be replaced
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
	pod := &set.Spec.Template
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, p.labels(space))
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotationConfig] = digest
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == volumeName {
			v.Secret.SecretName = set.Name
		}
	}
	if len(claims) == 0 {
		replaceVolumes(&pod.Spec, p.Template.Spec.VolumeClaimTemplates)
	}
	return set
}

// replaceVolumes gives a pod empty directories in place of the volumes of claims. They are as large as the volumes would be, and the pod may
// use that much more of its node.
func replaceVolumes(pod *corev1.PodSpec, claims []corev1.PersistentVolumeClaim) {
	for i := range claims {
		size := claims[i].Spec.Resources.Requests.Storage().DeepCopy()
		pod.Volumes = append(pod.Volumes, corev1.Volume{
			Name: claims[i].Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &size}},
		})
		limits := pod.Containers[0].Resources.Limits
		if limit, limited := limits[corev1.ResourceEphemeralStorage]; limited {
			limit.Add(size)
			limits[corev1.ResourceEphemeralStorage] = limit
		}
	}
}

// Known returns a file of the directory of a space's process as it is on the host; nil if there is none. The platform may write Secrets of
// pods, and not read them. So it asks for a change of nothing, and the response has the Secret.
func (p *Pods) Known(ctx context.Context, space, file string) ([]byte, error) {
	secret := &corev1.Secret{ObjectMeta: p.meta(space)}
	err := p.Host.Patch(ctx, secret, client.RawPatch(types.MergePatchType, []byte("{}")), client.FieldOwner(fieldOwner))
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("find the pod of space %s: %w", space, err)
	}
	if err != nil || secret.Type != SecretType || secret.Labels[translate.LabelPlatform] != p.Platform {
		return nil, nil
	}
	return secret.Data[file], nil
}

// Remove deletes the objects of a space, and the volume with its store. It returns a description of what is left; empty
// if everything is deleted. It does not wait, and must be called again until then.
func (p *Pods) Remove(ctx context.Context, space string) (left string, err error) {
	at := p.meta(space)
	for _, o := range []client.Object{&appsv1.StatefulSet{ObjectMeta: at}, &corev1.Service{ObjectMeta: at}, &corev1.Secret{ObjectMeta: at}} {
		if err := p.Host.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("delete the pod of space %s: %w", space, err)
		}
	}
	of := []client.ListOption{client.InNamespace(at.Namespace), client.MatchingLabels(at.Labels)}
	pods, claims := &corev1.PodList{}, &corev1.PersistentVolumeClaimList{}
	if err := errors.Join(p.Host.List(ctx, pods, of...), p.Host.List(ctx, claims, of...)); err != nil {
		return "", fmt.Errorf("list what is left of the pod of space %s: %w", space, err)
	}
	for i := range pods.Items {
		return "pod " + pods.Items[i].Name + " is being deleted", nil
	}
	for i := range claims.Items {
		return "persistent volume claim " + claims.Items[i].Name + " is being deleted", nil
	}
	return "", nil
}

// Why returns why the pod of a space does not run, according to its status.
func (p *Pods) Why(ctx context.Context, space string) string {
	pods := &corev1.PodList{}
	if err := p.Host.List(ctx, pods, client.InNamespace(p.Template.Namespace), client.MatchingLabels(p.labels(space))); err != nil {
		return err.Error()
	}
	if len(pods.Items) == 0 {
		return "the pod does not exist; see the events of StatefulSet " + Name(space)
	}
	pod := &pods.Items[0]
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil:
			return fmt.Sprintf("pod %s waits: %s: %s", pod.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
		case c.State.Terminated != nil:
			return fmt.Sprintf("pod %s has ended: %s: %s", pod.Name, c.State.Terminated.Reason, c.State.Terminated.Message)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("pod %s is not scheduled: %s", pod.Name, c.Message)
		}
	}
	return fmt.Sprintf("pod %s is %s", pod.Name, pod.Status.Phase)
}

// Digest returns the digest of what a pod's process reads only once.
func Digest(parts ...[]byte) string {
	hash := sha256.New()
	for _, part := range parts {
		sum := sha256.Sum256(part)
		hash.Write(sum[:])
	}
	return hex.EncodeToString(hash.Sum(nil))
}
