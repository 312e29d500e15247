// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"github.com/berth-dev/berth/internal/clientaddr"
	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	// maxToken is the maximum length of tokens, in bytes. A service-account token has about one kilobyte.
	maxToken = 16 << 10
	// leastSpaces and mostSpaces limit for how many spaces keys are kept in memory. There must be enough for all spaces
	// that may be awake, and for as many that get requests while they sleep. The keys of one space take up to 16 KiB.
	leastSpaces, mostSpaces = 256, 8192
	// rememberedBearers is how many verified credentials of each space are remembered, so that their signatures need
	// not be checked again.
	rememberedBearers = 64
	// rememberedRefusals is how many rejected credentials are remembered.
	rememberedRefusals = 4096

	// These limit how many signature checks may wait, of all clients and of one. A check takes a tenth of a
	// millisecond.
	maxChecks          = 256
	maxChecksPerClient = 16
)

// ErrBusy is returned if too many signatures are being checked. The client may retry.
var ErrBusy = errors.New("too many credentials are being checked")

// Verifier checks whether requests have a credential of a space. It is safe for concurrent use.
//
// Anybody can send requests with any credential, as often as they like. So the number of signature checks is limited,
// rejected credentials are remembered, and a request to a space that does not exist costs the client as much as one to
// a space that does.
type Verifier struct {
	// Former, if set, reports whether the credential of a request is one of a former owner of the space, which is rejected though
	// its signature is good. It must be set before the first request.
	Former func(space string, r *http.Request) bool

	dir   func(space string) string
	clock clock.PassiveClock

	spaces  *lru.Cache // maps names to *keys
	refused *lru.Cache // set of [sha256.Size]byte
	nobody  *keys      // for spaces that don't exist
	waiting *clientaddr.Counter
	checks  *semaphore.Weighted
	flights singleflight.Group // checks, by the key of their refusal
}

// New returns a verifier for spaces whose keys are below dir. At most spacesMax of them are awake at once; 0 means no
// limit.
func New(dir func(space string) string, spacesMax int, c clock.PassiveClock) (*Verifier, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	nobody := newKeys()
	nobody.cas, nobody.tokens = append(nobody.cas, &key.PublicKey), append(nobody.tokens, pki.RetiredKey{Key: &key.PublicKey})
	remembered := min(max(leastSpaces, 2*spacesMax), mostSpaces)
	return &Verifier{
		dir: dir, clock: c, nobody: nobody,
		spaces: lru.New(remembered), refused: lru.New(rememberedRefusals),
		waiting: clientaddr.NewCounter(maxChecks, maxChecksPerClient),
		// Checks for unknown clients must leave processors to clients that are already verified.
		checks: semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2))),
	}, nil
}

// Forget removes what is remembered of a space, so that the next request reads the space's key files again.
func (c *Verifier) Forget(space string) { c.spaces.Remove(space) }

// bearer returns the token of a request, parsed as the API server does; empty if there is none.
func bearer(r *http.Request) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Bearer") { // RFC 7235, section 2.1
		return ""
	}
	text, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	return text
}

// Verify reports whether a request has a credential of a space. It returns an error if that can't be decided now.
func (c *Verifier) Verify(space string, r *http.Request) (bool, error) {
	signed, err := c.verify(space, r)
	return signed && (c.Former == nil || !c.Former(space, r)), err
}

// verify is Verify by the signature alone.
func (c *Verifier) verify(space string, r *http.Request) (bool, error) {
	var offered []credential
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		offered = append(offered, certificate{r.TLS.PeerCertificates[0]})
	}
	if text := bearer(r); text != "" && len(text) <= maxToken {
		offered = append(offered, token(text))
	}
	if len(offered) == 0 || len(validation.IsDNS1123Label(space)) > 0 {
		return false, nil
	}
	var known *keys
	if found, ok := c.spaces.Get(space); ok {
		known = found.(*keys)
	}
	now := c.clock.Now()
	for _, o := range offered {
		if known != nil && known.remembers(o, now) {
			return true, nil
		}
	}
	// The keys may have been renewed, or may not have been read yet.
	dir := filepath.Join(c.dir(space), "pki")
	stamps := stampsOf(dir)
	if known == nil || known.files != stamps {
		known = c.nobody
		if read, err := readKeys(dir, now); err == nil {
			read.files = stamps
			c.spaces.Add(space, read)
			known = read
		}
	}
	for _, o := range offered {
		if good, err := c.check(r.Context(), space, known, o, clientaddr.OfRemote(r.RemoteAddr), now); good || err != nil {
			return good, err
		}
	}
	return false, nil
}

// check verifies a signature. Requests with the same credential at the same time are one check: a client may have sent many to a space that
// has just moved here, which held them.
func (c *Verifier) check(ctx context.Context, space string, k *keys, o credential, client netip.Prefix, now time.Time) (good bool, err error) {
	refusal := sha256.Sum256(fmt.Appendf(nil, "%s %v %x", space, k.files, o.sum()))
	if _, is := c.refused.Get(refusal); is {
		return false, nil
	}
	for range 2 {
		result, failed, shared := c.flights.Do(string(refusal[:]), func() (any, error) { return c.checkSignature(ctx, refusal, k, o, client, now) })
		good, _ = result.(bool)
		if err = failed; err == nil || !shared || ctx.Err() != nil {
			break
		}
		// Perhaps the request that was checked for all of them has ended.
	}
	return good, err
}

// checkSignature verifies a signature, within the limit of concurrent checks.
func (c *Verifier) checkSignature(ctx context.Context, refusal [sha256.Size]byte, k *keys, o credential, client netip.Prefix, now time.Time) (bool, error) {
	if !c.waiting.Take(client) {
		return false, ErrBusy
	}
	defer c.waiting.Give(client)
	if c.checks.Acquire(ctx, 1) != nil {
		return false, ErrBusy
	}
	defer c.checks.Release(1)
	until, good := o.signedBy(k)
	if !good || !now.Before(until) {
		c.refused.Add(refusal, nil)
		return false, nil
	}
	if now.Before(o.from()) {
		return false, nil
	}
	k.seen.Add(o.sum(), until)
	return true, nil
}
