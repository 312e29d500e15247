// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// dirFiles are the files of a directory, by name.
type dirFiles map[string]string

func filesIn(t *testing.T, dir string) dirFiles {
	t.Helper()
	files := dirFiles{}
	for _, e := range must(os.ReadDir(dir))(t) {
		if e.Name() != "ca.lock" {
			files[e.Name()] = string(must(os.ReadFile(filepath.Join(dir, e.Name())))(t))
		}
	}
	return files
}

func (f dirFiles) restore(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, data := range f {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// between are the states of a directory at a crash between two of them, of which first is the file that is written
// first. A rename is done at once.
func between(before, after dirFiles, first string) (states []dirFiles) {
	if data, ok := after[first]; ok && data != before[first] {
		state := maps.Clone(before)
		state[first] = data
		states = append(states, state)
	}
	return append(states, after)
}

// X2: a rotation that has begun ends, wherever it is cut off: what was issued before is refused from the first write
// on, and what is issued afterwards is good.
func TestARotationThatIsCutOffIsFinished(t *testing.T) {
	for name, age := range map[string]time.Duration{"a young authority": 0, "one whose successor is published": caLifetime * 3 / 4} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			begin := time.Now()
			must(OpenCAWithClock(dir, "one", fixedClock(begin.Add(-age))))(t)
			now := fixedClock(begin)
			ca := must(OpenCAWithClock(dir, "one", now))(t)
			old := certOf(t, must(ca.Client("admin", nil))(t))
			// As Rotate does it, a step at a time.
			if err := WriteFile(filepath.Join(dir, revokedFile), must(certutil.EncodeCertificates(ca.kept...))(t)); err != nil {
				t.Fatal(err)
			}
			states := []dirFiles{filesIn(t, dir)}
			for {
				if err := ca.load(); err != nil {
					t.Fatal(err)
				}
				if !ca.due(now.Now()) {
					break
				}
				if err := ca.step(now.Now()); err != nil {
					t.Fatal(err)
				}
				states = append(states, between(states[len(states)-1], filesIn(t, dir), "ca-next.key")...)
			}
			if len(states) != 6 { // revoked, next key written, published, succeeded, dropped, forgotten
				t.Fatalf("there are %d states only", len(states))
			}
			for i, state := range states {
				dir := state.restore(t)
				for range 2 { // at once, and after another start
					trusted := must(Trusted(dir))(t)
					if slices.ContainsFunc(trusted, func(c *x509.Certificate) bool { return old.CheckSignatureFrom(c) == nil }) {
						t.Errorf("state %d: what is revoked is trusted by who only reads", i)
					}
					again := must(OpenCAWithClock(dir, "one", now))(t)
					if _, err := old.Verify(again.Verify(x509.ExtKeyUsageClientAuth)); err == nil {
						t.Errorf("state %d: a revoked certificate is good", i)
					}
					if _, err := certOf(t, must(again.Client("admin", nil))(t)).Verify(again.Verify(x509.ExtKeyUsageClientAuth)); err != nil {
						t.Errorf("state %d: a new certificate is refused: %v", i, err)
					}
					if files := filesIn(t, dir); len(again.kept) != 1 || files[revokedFile] != "" || files["ca-next.key"] != "" {
						t.Errorf("state %d: %d authorities are kept; files are %q", i, len(again.kept), slices.Sorted(maps.Keys(files)))
					}
				}
			}
		})
	}
}

// A disk that takes no files must not have an authority sign that is revoked.
func TestAnAuthorityThatIsRevokedSignsNothing(t *testing.T) {
	dir := t.TempDir()
	ca := must(OpenCA(dir, "one"))(t)
	ca.revoked = ca.kept
	if err := os.Mkdir(filepath.Join(dir, "ca-next.key"), 0o700); err != nil { // root may write anywhere
		t.Fatal(err)
	}
	if pair, err := ca.Client("admin", nil); err == nil {
		t.Errorf("it issued %s", pair.Cert)
	}
	if err := os.Remove(filepath.Join(dir, "ca-next.key")); err != nil {
		t.Fatal(err)
	}
	if err := ca.Rotate(); err != nil {
		t.Fatal(err)
	}
	if _, err := certOf(t, must(ca.Client("admin", nil))(t)).Verify(ca.Verify(x509.ExtKeyUsageClientAuth)); err != nil {
		t.Errorf("its successor issues nothing that is good: %v", err)
	}
}

// X2: tokens of the key before are good for the overlap, and a crash leaves one of the two in use.
func TestTheServiceAccountKeyIsRotated(t *testing.T) {
	dir, now := t.TempDir(), time.Now().Truncate(time.Second)
	if err := RotateServiceAccountKey(dir, now, time.Hour); err != nil { // of a space that never started
		t.Fatal(err)
	}
	first, before := must(ServiceAccountPublicKey(dir))(t), filesIn(t, dir)
	if err := RotateServiceAccountKey(dir, now, time.Hour); err != nil {
		t.Fatal(err)
	}
	second := must(ServiceAccountPublicKey(dir))(t)
	if second.Equal(first) {
		t.Fatal("it is the same")
	}
	for _, state := range between(before, filesIn(t, dir), retiredFile) {
		dir := state.restore(t)
		retired := must(RetiredServiceAccountKeys(dir, now))(t)
		if signs := must(ServiceAccountPublicKey(dir))(t); !signs.Equal(first) && (len(retired) != 1 || !retired[0].Key.Equal(first)) {
			t.Errorf("after a crash, tokens of the first key are refused")
		}
		if err := RotateServiceAccountKey(dir, now, 2*time.Hour); err != nil {
			t.Errorf("after a crash, it is not rotated: %v", err)
		}
	}
	for after, want := range map[time.Duration]int{0: 1, time.Hour - time.Second: 1, time.Hour: 0} {
		if retired := must(RetiredServiceAccountKeys(dir, now.Add(after)))(t); len(retired) != want {
			t.Errorf("after %s, tokens of %d earlier keys are good, want %d", after, len(retired), want)
		}
	}
	if err := RotateServiceAccountKey(dir, now.Add(time.Minute), time.Hour); err != nil {
		t.Fatal(err)
	}
	if retired := must(RetiredServiceAccountKeys(dir, now.Add(time.Minute)))(t); len(retired) != 2 || !retired[0].Key.Equal(first) || !retired[1].Key.Equal(second) {
		t.Errorf("rotated again within the overlap: %v", retired)
	}
	if err := RotateServiceAccountKey(dir, now.Add(time.Minute), 0); err != nil {
		t.Fatal(err)
	}
	if retired := must(RetiredServiceAccountKeys(dir, now.Add(time.Minute)))(t); len(retired) != 0 {
		t.Errorf("rotated without an overlap, %d earlier keys are good", len(retired))
	}
}

func fixedClock(at time.Time) clock.PassiveClock { return stopped{at} }

type stopped struct{ at time.Time }

func (s stopped) Now() time.Time                  { return s.at }
func (s stopped) Since(t time.Time) time.Duration { return s.at.Sub(t) }

func certOf(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	certs := must(certutil.ParseCertsPEM(bytes.Clone(p.Cert)))(t)
	return certs[0]
}
