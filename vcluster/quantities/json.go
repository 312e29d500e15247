// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quantities

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"

	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/bounds"
)

var errMalformed = errors.New("its quantities can't be checked")

// CheckDocument returns an error that names the field if an object of a type has a quantity that [Check] refuses. The object is
// JSON, YAML, or an API server's protobuf. A document that is none of these is refused if it is [Suspect].
func CheckDocument(document []byte, object reflect.Type) error {
	if !Suspect(document) {
		return nil
	}
	of := TypeOf(object)
	switch {
	case of == nil:
		return nil
	case isProtobuf(document):
		return checkProtobuf(document, of)
	}
	err := checkJSON(document, of, "")
	if err == nil || errors.Is(err, bounds.ErrExceeded) {
		return err
	}
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return checkJSON(text, of, "")
}

// checkJSON reads tokens rather than values: what decodes a document looks at each of several members of one name.
func checkJSON(document []byte, of *Type, path string) error {
	w := walk{json.NewDecoder(bytes.NewReader(document))}
	w.tokens.UseNumber()
	if err := w.value(of, path); err != nil {
		return err
	}
	if _, err := w.tokens.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: there is more after the first value", errMalformed)
	}
	return nil
}

type walk struct{ tokens *json.Decoder }

// value checks the next value. One that can have no quantities is left out, however deep it is.
func (w *walk) value(of *Type, path string) error {
	if of == nil {
		var unread json.RawMessage
		if err := w.tokens.Decode(&unread); err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		return nil
	}
	token, err := w.tokens.Token()
	if err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	switch token := token.(type) {
	case json.Delim:
		return w.values(token == '{', of, path)
	case string:
		return of.check(token, path)
	case json.Number:
		return of.check(token.String(), path)
	}
	return nil
}

// values checks those of an object or a list, of which the first bracket has been read.
func (w *walk) values(object bool, of *Type, path string) error {
	for i := 0; w.tokens.More(); i++ {
		next, at := of.item(), path+"["+strconv.Itoa(i)+"]"
		if object {
			token, err := w.tokens.Token()
			if err != nil {
				return fmt.Errorf("%w: %w", errMalformed, err)
			}
			name, _ := token.(string)
			next, at = of.member(name), join(path, name)
		}
		if err := w.value(next, at); err != nil {
			return err
		}
	}
	if _, err := w.tokens.Token(); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return nil
}

// check a scalar.
func (s *Type) check(text, path string) error {
	if !s.quantity {
		return nil
	}
	if err := Check(text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// maxShown is how much of a quantity an error says.
const maxShown = 20

func short(text string) string {
	if len(text) > maxShown {
		return strconv.Quote(text[:maxShown]) + "..."
	}
	return strconv.Quote(text)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
