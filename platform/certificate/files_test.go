// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package certificate_test

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/certificate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// issued are files of a certificate that a CA of its own issued.
type issued struct {
	certificate.Paths
	ca *pki.CA
}

func issue(t *testing.T, hosts ...string) *issued {
	t.Helper()
	dir := t.TempDir()
	ca, err := pki.OpenCA(filepath.Join(dir, "ca"), "company")
	if err != nil {
		t.Fatal(err)
	}
	i := &issued{ca: ca, Paths: certificate.Paths{Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"), CA: filepath.Join(dir, "ca.crt")}}
	i.renew(t, hosts...)
	write(t, i.CA, ca.PEM())
	return i
}

func (i *issued) renew(t *testing.T, hosts ...string) {
	t.Helper()
	pair, err := i.ca.Server(hosts...)
	if err != nil {
		t.Fatal(err)
	}
	write(t, i.Cert, pair.Cert)
	write(t, i.Key, pair.Key)
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

var errOwn = errors.New("the platform's own")

func own(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errOwn }

// X1: the files' certificate is for the names that it is valid for, and the platform's own for all others.
func TestACertificateIsChosenByName(t *testing.T) {
	i := issue(t, "berth.example.com", "192.0.2.1")
	for host, names := range map[string]map[string]bool{
		"berth.example.com": {"berth.example.com": true, "localhost": false, "other.example.com": false, "": true},
		"192.0.2.1":         {"berth.example.com": true, "localhost": false, "": true},
	} {
		files, err := certificate.Open(i.Paths, host, own, clock.RealClock{}, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		for name, chosen := range names {
			got, err := files.Get(&tls.ClientHelloInfo{ServerName: name})
			if chosen != (err == nil && got.Leaf.DNSNames[0] == "berth.example.com") || !chosen && !errors.Is(err, errOwn) {
				t.Errorf("advertised as %s, %q gets %v (%v)", host, name, got, err)
			}
		}
	}
}

// X1: a renewed certificate is served within seconds, and files that can't be used leave the one that is there until it ends.
func TestFilesAreReadAgain(t *testing.T) {
	i := issue(t, "berth.example.com")
	now := clocktesting.NewFakePassiveClock(time.Now())
	files, err := certificate.Open(i.Paths, "berth.example.com", own, now, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		now.SetTime(now.Now().Add(time.Minute))
		got, err := files.Get(&tls.ClientHelloInfo{ServerName: "berth.example.com"})
		if err != nil {
			t.Fatal(err)
		}
		return got.Leaf.SerialNumber.String()
	}
	first := serial()
	i.renew(t, "berth.example.com")
	second := serial()
	if first == second {
		t.Error("a renewed certificate is not served")
	}
	for what, broken := range map[string]func(){
		"no certificate":      func() { write(t, i.Cert, []byte("none")) },
		"another's key":       func() { write(t, i.Cert, must(os.ReadFile(issue(t, "berth.example.com").Cert))(t)) },
		"another's name":      func() { i.renew(t, "other.example.com") },
		"no file (for a day)": func() { _ = os.Remove(i.Key) },
	} {
		broken()
		if got := serial(); got != second || files.Check() != nil {
			t.Errorf("%s: %s is served, want %s (%v)", what, got, second, files.Check())
		}
	}
	now.SetTime(files.NotAfter().Add(time.Second))
	if err := files.Check(); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("it ended: %v", err)
	}
	if _, err := certificate.Open(i.Paths, "", own, now, logr.Discard()); err == nil {
		t.Error("files that are missing are taken")
	}
}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// X1: an error names the flag and what is wrong with its file.
func TestFilesThatCantServeAreRefused(t *testing.T) {
	i, other := issue(t, "berth.example.com"), issue(t, "other.example.com")
	broken := issue(t, "berth.example.com")
	write(t, broken.CA, []byte("none"))
	for says, paths := range map[string]certificate.Paths{
		"host of --advertise": other.Paths, "private key": {Cert: i.Cert, Key: other.Key}, "no such file": {Cert: i.Cert + "x", Key: i.Key}, "ca.crt": broken.Paths,
	} {
		_, err := certificate.Open(paths, "berth.example.com", own, clock.RealClock{}, logr.Discard())
		if _, ok := errors.AsType[*fielderror.Error](err); !ok || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want it to say %s", paths, err, says)
		}
	}
	if err := os.Remove(i.CA); err != nil {
		t.Fatal(err)
	}
	files, err := certificate.Open(i.Paths, "", own, clock.RealClock{}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if ca, err := files.CA(); ca != nil || err != nil {
		t.Errorf("without a CA, clients trust %s (%v)", ca, err)
	}
}
