// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// Audit says what is recorded of requests, and where it is sent.
//
// +kubebuilder:validation:MinProperties=1
type Audit struct {
	// policy is a Policy of audit.k8s.io/v1, as in the file of kube-apiserver. Events have no bodies of requests and responses: the levels
	// Request and RequestResponse are as Metadata. Defaults to the policy of the platform.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	Policy *runtime.RawExtension `json:"policy,omitempty"`
	// webhook gets the events, as lists of audit.k8s.io/v1, in addition to the log and the webhook of the platform.
	// +optional
	Webhook AuditWebhook `json:"webhook,omitzero"`
}

// AuditWebhook is a server that gets events.
type AuditWebhook struct {
	// url is where events are posted to. It must begin with https://.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^https://[^@]+$`
	URL string `json:"url,omitempty"`
	// caBundle has the certificates of CAs that the server's certificate may be of, in PEM. Defaults to the CAs of Berth's system.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle []byte `json:"caBundle,omitempty"`
}
