// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/roundtrip"
)

// accountedElement is what package requests accounts for an element of a document.
const accountedElement = 1600

// L3 (S2): a patch is text in an answer, and becomes an object.
func TestHostileAPatchIsAccountedWithWhatItBecomes(t *testing.T) {
	const n = 10000
	patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/spec/containers","value":[` + strings.Repeat("{},", n) + `{}]}]`))
	for name, encoded := range map[string]string{
		"as it is":       patch,
		"escaped slash":  strings.ReplaceAll(patch, "/", `\/`),
		"escaped letter": `\u0057` + patch[1:],
		"a line":         patch[:4] + `\n` + patch[4:],
	} {
		answer := `{"response":{"allowed":true,"uid":"a,b","patchType":"JSONPatch","patch":"` + encoded + `"}}`
		size, err := (&answerSize{}).Add([]byte(answer))
		if err != nil || size < n*accountedElement {
			t.Errorf("%s: %d elements are accounted with %d bytes, %v", name, n, size, err)
		}
	}
	text := strings.Repeat("A warning, [as] {long} as a book. ", 10000)
	if size, err := (&answerSize{}).Add([]byte(`{"response":{"warnings":["` + text + `"]}}`)); err != nil || size > int64(4*len(text)) {
		t.Errorf("a text of %d bytes is accounted with %d, %v", len(text), size, err)
	}
}

// answering asks a webhook for an object, and returns the error of reading what it answers.
func answering(t *testing.T, limit int, object, answer string) error {
	t.Helper()
	webhook := boundAnswers(limit, nil)(roundtrip.Func(func(*http.Request) (*http.Response, error) {
		return &http.Response{Body: io.NopCloser(strings.NewReader(answer))}, nil
	}))
	reservation := bounds.NewAccount(nil).Reserve(bounds.MemoryBytes, 0)
	defer reservation.End()
	r, err := http.NewRequestWithContext(bounds.WithReservation(t.Context(), reservation), http.MethodPost, "https://webhook", strings.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := webhook.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	return err
}

// L3: the patch that a webhook answers with is not applied if that takes too long, however it is written.
func TestHostileAWebhooksPatchIsBoundedByItsWork(t *testing.T) {
	object := `{"request":{"object":{"spec":[` + strings.Repeat("1,", 100_000) + `1]}}}`
	encoded := func(operations int) string {
		operation := `{"op":"add","path":"/spec/0","value":1}`
		return base64.StdEncoding.EncodeToString([]byte("[" + strings.Repeat(operation+",", operations-1) + operation + "]"))
	}
	answer := func(patch string) string {
		return `{"response":{"allowed":true,"patch":"` + patch + `","patchType":"JSONPatch"}}`
	}
	many := encoded(1000)
	for name, patch := range map[string]string{
		"as it is":        many,
		"escaped letters": strings.ReplaceAll(many, "W", `\u0057`),
		"in lines":        strings.ReplaceAll(many, "W", `W\n`),
	} {
		if err := answering(t, maxAdmitted, object, answer(patch)); !errors.Is(err, bounds.ErrExceeded) || !strings.Contains(err.Error(), "limit patch-steps") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := answering(t, maxAdmitted, object, "response: {allowed: true, patch: "+many+"}"); !errors.Is(err, errAnswer) {
		t.Errorf("YAML: %v", err)
	}
	for name, text := range map[string]string{
		"few operations": answer(encoded(10)), "a message": `{"response":{"status":{"message":"it is \"wrong\"\n` + strings.Repeat("no ", 5000) + `"}}}`,
	} {
		if err := answering(t, maxAdmitted, object, " \n"+text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// L3 (S2): an answer is read up to what an object may have, and that of a conversion up to how much larger it may make objects.
func TestHostileAWebhookAnswersNoMoreThanAllowed(t *testing.T) {
	for _, test := range []struct{ limit, asked, most int }{
		{maxAdmitted, 0, maxAdmitted}, {MaxConverted, 0, maxAdmitted}, {MaxConverted, 1 << 20, maxAdmitted + 1<<20}, {MaxConverted, MaxConverted, MaxConverted},
	} {
		limit, length := test.limit, test.most+1
		webhook := boundAnswers(limit, nil)(roundtrip.Func(func(*http.Request) (*http.Response, error) {
			return &http.Response{Body: io.NopCloser(strings.NewReader(strings.Repeat(" ", length)))}, nil
		}))
		account := bounds.NewAccount(nil)
		reservation := account.Reserve(bounds.MemoryBytes, 0)
		r, err := http.NewRequestWithContext(bounds.WithReservation(t.Context(), reservation), http.MethodPost, "https://webhook", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = int64(test.asked)
		resp, err := webhook.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(resp.Body)
		if want := fmt.Sprintf("longer than %d bytes", test.most); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
		reservation.End()
	}
}

// What a conversion webhook answers holds no patch, though its strings may look like one.
func TestConvertedObjectsAreNoPatches(t *testing.T) {
	data := base64.StdEncoding.EncodeToString([]byte("[" + strings.Repeat(`{"a":1},`, 7200) + "{}]"))
	if err := answering(t, MaxConverted, "{}", `{"response":{"convertedObjects":[{"spec":{"data":"`+data+`"}}]}}`); err != nil {
		t.Error(err)
	}
}

// L3: a webhook's patch puts no quantity into an object that takes minutes to parse.
func TestHostileAWebhooksPatchHasNoLargeQuantities(t *testing.T) {
	review := func(kind string) string {
		return `{"request":{"kind":` + kind + `,"object":{"metadata":{"annotations":{"a":"1e-5000000"}}}}}`
	}
	pod, boat := review(`{"group":"","version":"v1","kind":"Pod"}`), review(`{"group":"example.com","version":"v1","kind":"Boat"}`)
	const add, move = `[{"op":"add","path":"/spec/overhead","value":{"cpu":"1e-5000000"}}]`, ` [{"op":"move","from":"/metadata/annotations","path":"/spec/overhead"}]`
	for name, c := range map[string]struct{ object, patch, says string }{
		"a quantity": {pod, add, "limit quantity-digits"}, "a move": {pod, move, "use add, with the value"}, "a custom resource": {boat, add, ""},
		"an annotation": {pod, `[{"op":"add","path":"/metadata/annotations/b","value":"1e-5000000"}]`, ""},
	} {
		answer := `{"response":{"patchType":"JSONPatch","patch":"` + base64.StdEncoding.EncodeToString([]byte(c.patch)) + `"}}`
		if err := answering(t, maxAdmitted, c.object, answer); (c.says == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
