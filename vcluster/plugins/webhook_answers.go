// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/patches"
	"github.com/berth-dev/berth/vcluster/quantities"
	"github.com/berth-dev/berth/vcluster/requests"
	"github.com/berth-dev/berth/vcluster/roundtrip"
)

// How many bytes a webhook may answer: as its client reads all of it into the memory that spaces share.
const (
	// A list of objects to convert is one answer.
	MaxConverted = 16 << 20
	// A patch makes an object at most as much larger, and objects are no larger.
	maxAdmitted = 3 << 20
)

const (
	// callMemory is about what the call of a webhook takes besides its object: a connection, with buffers and goroutines.
	callMemory = 64 << 10
	// callCopies is how often the encoded object is in memory: in the buffer that it was written to, too.
	callCopies = 3
)

// holdConversion takes what the call of a conversion webhook holds from the account, which may be nil: upstream makes the call without
// the context of the request that it is for. What admission webhooks hold is taken before they are called: some of them may be ignored
// if they fail.
func holdConversion(r *http.Request, limit int, account *bounds.Account) (*bounds.Reservation, error) {
	if limit != MaxConverted || account == nil {
		return nil, nil
	}
	held := account.Reserve(bounds.MemoryBytes, 0)
	if err := held.Grow(callMemory + callCopies*max(0, r.ContentLength)); err != nil {
		held.End()
		return nil, err
	}
	return held, nil
}

// boundAnswers fails the reading of an answer that is longer than limit, or has a patch that takes too long to apply.
// What conversion webhooks hold, the account has.
func boundAnswers(limit int, account *bounds.Account) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundtrip.Func(func(r *http.Request) (*http.Response, error) {
			held, err := holdConversion(r, limit, account)
			if err != nil {
				roundtrip.CloseBody(r)
				return nil, err
			}
			object, err := askedFor(r, limit)
			if err != nil {
				held.End()
				roundtrip.CloseBody(r)
				return nil, err
			}
			reading := bounds.ReservationOf(r.Context())
			if reading == nil {
				reading = held
			}
			slot := webhookSlotOf(r.Context())
			slot.beginCall()
			resp, err := next.RoundTrip(r)
			if err != nil {
				slot.endCall()
				held.End()
				return nil, err
			}
			most := mostAnswered(limit, r)
			bounded := &boundedBody{
				ReadCloser: resp.Body, limit: most, left: most, size: &answerSize{object: object, admission: limit == maxAdmitted},
				reservation: reading,
			}
			resp.Body = &roundtrip.EndingBody{ReadCloser: bounded, End: sync.OnceFunc(func() {
				slot.endCall()
				held.End()
			})}
			return resp, nil
		})
	}
}

// mostAnswered is how many bytes a webhook may answer to a request. Conversion makes an object at most as much larger as a patch does.
func mostAnswered(limit int, r *http.Request) int {
	return int(min(int64(limit), maxAdmitted+max(0, r.ContentLength)))
}

// asked is the object that an admission webhook is asked for, which its patch is for.
type asked struct {
	shape patches.Shape
	// quantities is called for a patch.
	quantities func() (*quantities.Type, error)
}

// askedFor returns what counts of a request's object. The webhook may answer before it has read the request.
func askedFor(r *http.Request, limit int) (asked, error) {
	none := func() (*quantities.Type, error) { return nil, nil }
	if limit != maxAdmitted || r.GetBody == nil {
		return asked{quantities: none}, nil
	}
	body, err := r.GetBody()
	if err != nil {
		return asked{}, fmt.Errorf("read the request to the webhook: %w", err)
	}
	defer body.Close()
	var document patches.Document
	_, err = io.Copy(&document, body)
	return asked{document.Shape(), sync.OnceValues(func() (*quantities.Type, error) { return quantitiesOf(r.GetBody) })}, err
}

// quantitiesOf is where the object of a review can have quantities.
func quantitiesOf(body func() (io.ReadCloser, error)) (*quantities.Type, error) {
	var review struct {
		Request struct {
			Kind schema.GroupVersionKind `json:"kind"`
		} `json:"request"`
	}
	read, err := body()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	if err := json.NewDecoder(read).Decode(&review); err != nil {
		return nil, fmt.Errorf("read the request to the webhook: %w", err)
	}
	return quantities.TypeOf(legacyscheme.Scheme.AllKnownTypes()[review.Request.Kind]), nil
}

// boundedBody fails once more than limit bytes have been read, or the request that the webhook is asked for may hold no more.
type boundedBody struct {
	io.ReadCloser
	limit, left int
	size        requests.DocumentSize
	reservation *bounds.Reservation
	refused     bool // what was read may not be read on
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		b.refused = true
		return 0, fmt.Errorf("the webhook's response is longer than %d bytes; return less, for example a smaller patch", b.limit)
	}
	if n == 0 {
		return 0, err // clients read on after the end, when nothing is held any more
	}
	size, refused := b.size.Add(p[:n])
	if refused == nil {
		refused = b.reservation.Grow(size)
	}
	if refused != nil {
		b.refused = true
		return 0, fmt.Errorf("read the webhook's response: %w", refused)
	}
	return n, err
}

// answerSize counts the elements of a JSON document, and those of JSON documents that its strings hold in base64, as an
// admission webhook's answer holds a patch.
type answerSize struct {
	admission bool  // whether it may have a patch
	object    asked // that the patch is for
	json      requests.JSONSize
	begun     bool
	base64    base64Text        // of the string that is being read
	patch     requests.JSONSize // in it
	steps     *patches.Patch    // the same
	text      []byte            // the same
}

var errAnswer = errors.New("the webhook's response is not a JSON object; return an AdmissionReview or ConversionReview as JSON")

func (d *answerSize) Add(p []byte) (int64, error) {
	var size int64
	for i, c := range p {
		if !d.begun && c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			if c != '{' { // an API server would take it for YAML, or for protobuf
				return 0, errAnswer
			}
			d.begun = true
		}
		inString := d.json.InString
		n, _ := d.json.Add(p[i : i+1])
		size += n
		switch {
		case !inString && d.json.InString:
			d.base64, d.patch, d.steps, d.text = base64Text{}, requests.JSONSize{}, nil, d.text[:0]
		case inString && !d.json.InString:
			n, err := d.end()
			if err != nil {
				return 0, err
			}
			size += n
		case inString:
			size += d.inPatch(d.base64.add(c))
		}
	}
	return size, nil
}

// inPatch counts more of what may be a patch.
func (d *answerSize) inPatch(decoded []byte) int64 {
	if len(decoded) == 0 {
		return 0
	}
	if d.steps == nil && d.admission {
		d.steps = patches.New(types.JSONPatchType)
	}
	if d.steps != nil {
		d.steps.Add(decoded)
		d.text = append(d.text, decoded...)
	}
	n, _ := d.patch.Add(decoded)
	return n
}

// end ends a string, which may be a patch.
func (d *answerSize) end() (int64, error) {
	if d.steps == nil {
		return 0, nil
	}
	if err := d.steps.Check(d.object.shape); err != nil {
		return 0, err
	}
	text := bytes.Trim(d.text, " \t\r\n\x00") // the padding is decoded to zeros
	if bytes.HasPrefix(text, []byte("[")) {
		t, err := d.object.quantities()
		if err != nil {
			return 0, err
		}
		if err := t.CheckPatch(text); err != nil {
			return 0, fmt.Errorf("check the webhook's patch: %w", err)
		}
	}
	return d.steps.Memory(d.object.shape), nil
}
