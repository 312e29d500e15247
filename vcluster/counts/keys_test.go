// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package counts_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	"k8s.io/kubernetes/pkg/apis/certificates"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/counts"
)

// key is an RSA key that nobody has the private key of.
func key(bits int) *rsa.PublicKey {
	return &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), bits-1, 1), E: 1<<31 - 1}
}

// request asks for a certificate for a key, with a signature that is none.
func request(t *testing.T, bits int) []byte {
	t.Helper()
	public, err := x509.MarshalPKIXPublicKey(key(bits))
	if err != nil {
		t.Fatal(err)
	}
	type info struct {
		Version    int
		Subject    pkix.RDNSequence
		Key        asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	der, err := asn1.Marshal(struct {
		Info      info
		Algorithm pkix.AlgorithmIdentifier
		Signature asn1.BitString
	}{
		info{Key: asn1.RawValue{FullBytes: public}, Attributes: []asn1.RawValue{}},
		pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, Parameters: asn1.NullRawValue},
		asn1.BitString{Bytes: make([]byte, bits/8), BitLength: bits},
	})
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// bundle is the certificate of a key, behind another.
func bundle(t *testing.T, bits int) []byte {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, public := range []any{signer.Public(), key(bits)} {
		template := &x509.Certificate{SerialNumber: big.NewInt(1)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, public, signer)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return all
}

// L3: a request with an RSA key of 32 KiB took 3.5 s of a processor, which nothing interrupts, and one of 512 KiB some minutes.
func TestHostileKeysAreBounded(t *testing.T) {
	for name, of := range map[string]func(bits int) runtime.Object{
		"request": func(bits int) runtime.Object {
			return &certificates.CertificateSigningRequest{Spec: certificates.CertificateSigningRequestSpec{Request: request(t, bits)}}
		},
		"webhook": func(bits int) runtime.Object {
			return &admissionregistration.ValidatingWebhookConfiguration{Webhooks: []admissionregistration.ValidatingWebhook{{
				ClientConfig: admissionregistration.WebhookClientConfig{CABundle: bundle(t, bits)},
			}}}
		},
		"API": func(bits int) runtime.Object {
			return &apiregistration.APIService{Spec: apiregistration.APIServiceSpec{CABundle: bundle(t, bits)}}
		},
	} {
		if err := counts.Check(of(8192), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := counts.Check(of(16384), nil); !errors.Is(err, bounds.ErrExceeded) {
			t.Errorf("%s with a long key: %v", name, err)
		}
	}
}
