// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Document is one of the documents of a text.
type Document struct {
	// Number is its place in the text, from 1. Documents without content count.
	Number int
	// JSON is its content.
	JSON []byte
}

// Documents returns the documents of YAML, or the values of JSON, that have content. A field that is set twice is an error, as is a
// document that is no object.
func Documents(text []byte) (all []Document, err error) {
	raw, err := values(text)
	if raw == nil && err == nil {
		raw, err = split(text)
	}
	if err != nil {
		return nil, err
	}
	for i, document := range raw {
		var fields map[string]json.RawMessage
		content, err := yaml.YAMLToJSONStrict(document)
		if err == nil {
			err = json.Unmarshal(content, &fields)
		}
		if err != nil {
			return nil, fmt.Errorf("read document %d: %w", i+1, err)
		}
		if len(fields) > 0 { // more than comments
			all = append(all, Document{Number: i + 1, JSON: content})
		}
	}
	return all, nil
}

// values returns the values of a text that is JSON; nil if it is YAML, which may begin as JSON does.
func values(text []byte) (all [][]byte, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		at := decoder.InputOffset()
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil && len(all) > 0 && bytes.HasPrefix(bytes.TrimSpace(text[at:]), []byte("{")):
			// As YAML, this would be one document, of which parsers ignore all but the first object.
			return nil, fmt.Errorf("read document %d: %w", len(all)+1, err)
		case err != nil:
			return nil, nil
		}
		all = append(all, value)
	}
}

// split returns the documents of YAML.
func split(text []byte) (all [][]byte, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read document %d: %w", len(all)+1, err)
		}
		all = append(all, document)
	}
}
