// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// WorkloadIdentity allows an annotation of ServiceAccounts by which the cloud of the host gives pods an identity. An entry has one field
// manager: if an admin changes the values of a Space, those of the Tenant must not be merged into them.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="!has(self.podLabels) || self.podLabels.all(key, key.startsWith(self.annotation.split('/')[0] + '/'))",message="the keys of podLabels must have the prefix of the annotation, such as azure.workload.identity/"
// +kubebuilder:validation:XValidation:rule="self.annotation != 'eks.amazonaws.com/role-arn' || self.values.all(value, value.matches('^arn:[a-z-]+:iam::[0-9]+:role/'))",message="values of eks.amazonaws.com/role-arn must begin with the account and role/, such as arn:aws:iam::111122223333:role/solar-*"
// +kubebuilder:validation:XValidation:rule="!(self.annotation in ['iam.gke.io/gcp-service-account', 'azure.workload.identity/client-id', 'azure.workload.identity/tenant-id']) || self.values.all(value, !value.endsWith('*'))",message="values of this annotation can't end in *, because the beginning of one doesn't say whose it is; list whole values"
type WorkloadIdentity struct {
	// annotation is the key of an annotation of ServiceAccounts, such as eks.amazonaws.com/role-arn. A ServiceAccount has it on
	// the host, too, if its value is allowed. Keys of berth.dev, of Kubernetes' own domains, and of tools that act on any object
	// aren't possible.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!['berth.dev/', 'kubernetes.io/', 'k8s.io/', 'x-k8s.io/', 'openshift.io/', 'helm.sh/', 'argoproj.io/', 'fluxcd.io/', 'cattle.io/'].exists(domain, self.startsWith(domain) || self.contains('.' + domain))",message="controllers of the host act on annotations of berth.dev, kubernetes.io, k8s.io, x-k8s.io, openshift.io, helm.sh, argoproj.io, fluxcd.io, and cattle.io. Name an annotation by which a cloud gives an identity"
	Annotation string `json:"annotation,omitempty"`
	// values are those that the annotation may have. A value that ends in * allows all that begin with what is before it, and have no
	// two dots in a row. If a ServiceAccount has another value, it has no annotation on the host, and new pods that use it wait.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=2
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9:/._@+=~-]+\*?$`
	Values []string `json:"values,omitempty"`
	// podLabels are labels that pods have on the host, too. A pod has such a label there if it has it in the space, and its
	// ServiceAccount has the annotation with an allowed value. The webhook of Azure asks for a label azure.workload.identity/use with
	// the value true. The keys are reserved labels, by default or by reservedLabels of the platform's configuration.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=4
	PodLabels map[string]LabelValue `json:"podLabels,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
type LabelValue string
