// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	certificatesapi "k8s.io/kubernetes/pkg/apis/certificates/v1"
	"k8s.io/kubernetes/pkg/controller/certificates"
	"k8s.io/kubernetes/pkg/controller/certificates/authority"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	// signingWorkers is upstream's.
	signingWorkers = 5
	// signingBackdate and signingShort are upstream's, too: certificates begin a little before they are issued, unless
	// they are for less than a working day.
	signingBackdate = 5 * time.Minute
	signingShort    = 8 * time.Hour
	// reservedPrefix is the one of Berth's own users and groups, such as [pki.AdminGroup].
	reservedPrefix = "berth:"
)

// signer signs the approved CertificateSigningRequests of clients of the space's API, as upstream's controller does, of
// which each signer would follow two files for each space. The space has no kubelets: requests of these stay approved
// and unsigned.
type signer struct {
	ca     *pki.CA
	client kubernetes.Interface
}

func newSigningController(ctx context.Context, ca *pki.CA, inputs app.ControllerContext) (app.Controller, error) {
	client, err := inputs.NewClient("certificate-controller")
	if err != nil {
		return nil, err
	}
	s := &signer{ca, client}
	return signingController{certificates.NewCertificateController(ctx, "csrsigning-kube-apiserver-client", client,
		inputs.InformerFactory.Certificates().V1().CertificateSigningRequests(), s.handle)}, nil
}

type signingController struct {
	*certificates.CertificateController
}

func (signingController) Name() string { return names.CertificateSigningRequestSigningController }

func (c signingController) Run(ctx context.Context) { c.CertificateController.Run(ctx, signingWorkers) }

// handle signs a request, which is a copy.
func (s *signer) handle(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	if request.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName ||
		!certificates.IsCertificateRequestApproved(request) || certificates.HasTrueCondition(request, certificatesv1.CertificateFailed) {
		return nil
	}
	parsed, err := certificatesapi.ParseCSR(request.Spec.Request)
	if err != nil {
		return fmt.Errorf("parse certificate signing request %s: %w", request.Name, err)
	}
	if err := errors.Join(checkClientUsages(request.Spec.Usages), checkSubject(&parsed.Subject)); err != nil {
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure",
			Message: err.Error(), LastUpdateTime: metav1.Now(),
		})
	} else if request.Status.Certificate, err = s.sign(parsed, request.Spec); err != nil {
		return fmt.Errorf("sign certificate signing request %s: %w", request.Name, err)
	}
	if _, err := s.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, request, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("update certificate signing request %s: %w", request.Name, err)
	}
	return nil
}

func (s *signer) sign(request *x509.CertificateRequest, spec certificatesv1.CertificateSigningRequestSpec) ([]byte, error) {
	cert, key, err := s.ca.Signer()
	if err != nil {
		return nil, err
	}
	der, err := (&authority.CertificateAuthority{Certificate: cert, PrivateKey: key}).Sign(request.Raw, authority.PermissiveSigningPolicy{
		TTL: lifeOf(spec), Usages: spec.Usages, Backdate: signingBackdate, Short: signingShort,
	})
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), nil
}

// lifeOf is how long a certificate is good: as long as is asked for, within the bounds of all client certificates.
func lifeOf(spec certificatesv1.CertificateSigningRequestSpec) time.Duration {
	if spec.ExpirationSeconds == nil {
		return pki.MaxClientLifetime
	}
	return min(max(csr.ExpirationSecondsToDuration(*spec.ExpirationSeconds), pki.MinClientLifetime), pki.MaxClientLifetime)
}

// checkSubject refuses the names that only Berth gives: a former owner would keep by them what Berth takes away, and nothing in the
// space would show it.
func checkSubject(subject *pkix.Name) error {
	for _, name := range append([]string{subject.CommonName}, subject.Organization...) {
		if name == v1alpha1.OwnersGroup || strings.HasPrefix(name, reservedPrefix) {
			return fmt.Errorf("the subject of the certificate has the name %q, and only Berth issues certificates with it; remove the name, and bind roles to another", name)
		}
	}
	return nil
}

// checkClientUsages is upstream's check of what a client's certificate may be for.
func checkClientUsages(usages []certificatesv1.KeyUsage) error {
	isClients := false
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		case certificatesv1.UsageClientAuth:
			isClients = true
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", usage)
		}
	}
	if !isClients {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}
