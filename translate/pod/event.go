// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
)

// Event is what the space hears of an event about v's host object; nil for
// events of components whose messages are not known to keep to the pod: they
// could name other tenants' objects or nodes.
func Event(s translate.Space, e *corev1.Event, v, host *corev1.Pod) *corev1.Event {
	out := event(e, v, "Pod")
	switch component(e) {
	case "kubelet":
		out.Message = podScrubber(s, v, host).kubeletMessage(e.Reason, e.Message, v)
		out.InvolvedObject.FieldPath = e.InvolvedObject.FieldPath
		out.Source.Host = s.NodeAlias(host.Spec.NodeName)
	case corev1.DefaultSchedulerName:
		switch e.Reason {
		case "Scheduled":
			out.Message = "Successfully assigned " + v.Namespace + "/" + v.Name + " to " + s.NodeAlias(host.Spec.NodeName)
		case "FailedScheduling":
			out.Message = SchedulingReason(e.Message)
		default:
			return nil
		}
	default:
		return nil
	}
	return out
}

// ClaimEvent is what the space hears of an event about a volume claim's host
// object. Provisioners write what they like into messages, so that only the
// well-known reasons go up, each with words of its own.
func ClaimEvent(e *corev1.Event, v *corev1.PersistentVolumeClaim) *corev1.Event {
	messages := map[string]string{
		"WaitForFirstConsumer":  "waiting for first consumer to be created before binding",
		"WaitForPodScheduled":   "waiting for the claim's pod to be scheduled",
		"Provisioning":          "the host provisions a volume for the claim",
		"ExternalProvisioning":  "waiting for the host to provision a volume for the claim",
		"ProvisioningSucceeded": "the host provisioned a volume for the claim",
		"ProvisioningFailed":    "the host could not provision a volume for the claim; it tries again",
		"FailedBinding":         "the host has no volume for the claim and its storage class provisions none",
		"ProvisionerNotFound":   "the claim's storage class does not exist",
		"VolumeResizeFailed":    "the host could not resize the claim's volume",
	}
	message, known := messages[e.Reason]
	if !known {
		return nil
	}
	out := event(e, v, "PersistentVolumeClaim")
	out.Message = message
	// A provisioner's component holds the host name of the pod that it runs in.
	out.Source.Component, out.ReportingController, out.ReportingInstance = translate.VolumeDriver, translate.VolumeDriver, translate.VolumeDriver
	return out
}

// event carries over what is the same on both sides. Its name is the host
// event's suffix on the virtual name, so that a repetition updates its first.
func event(e *corev1.Event, v metav1.Object, kind string) *corev1.Event {
	suffix := e.Name[strings.LastIndex(e.Name, ".")+1:]
	if strings.Trim(suffix, "0123456789abcdef") != "" || len(suffix) > 16 {
		suffix = translate.Hashed("", translate.LimitLabel, "event", e.Name)[3:] // no recorder's name: it may tell the host's
	}
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: EventName(v.GetName(), suffix), Namespace: v.GetNamespace(), Labels: map[string]string{translate.LabelManagedBy: translate.ManagedBy},
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: kind, Namespace: v.GetNamespace(), Name: v.GetName(), UID: v.GetUID(),
		},
		Reason:         e.Reason,
		Source:         corev1.EventSource{Component: component(e)},
		FirstTimestamp: e.FirstTimestamp,
		LastTimestamp:  e.LastTimestamp,
		EventTime:      e.EventTime,
		Series:         e.Series.DeepCopy(),
		Count:          e.Count,
		Type:           e.Type,
		Action:         e.Action,

		ReportingController: component(e),
		ReportingInstance:   component(e), // never the host's: it is a node's name
	}
}

// EventName names an event about the object name, within the limit.
func EventName(name, suffix string) string {
	suffix = "." + suffix
	if left := translate.LimitSubdomain - len(suffix); len(name) > left {
		name = strings.TrimRight(name[:left], "-.")
	}
	return name + suffix
}

func component(e *corev1.Event) string {
	if e.ReportingController != "" {
		return e.ReportingController
	}
	return e.Source.Component
}

// PullEvent copies onto have what may change of an event, and reports a difference.
func PullEvent(want, have *corev1.Event) bool {
	if want.Count == have.Count && want.LastTimestamp.Equal(&have.LastTimestamp) && want.Message == have.Message && sameSeries(want.Series, have.Series) {
		return false
	}
	have.Count, have.LastTimestamp, have.Message, have.Series = want.Count, want.LastTimestamp, want.Message, want.Series
	return true
}

func sameSeries(a, b *corev1.EventSeries) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Count == b.Count && a.LastObservedTime.Equal(&b.LastObservedTime)
}
