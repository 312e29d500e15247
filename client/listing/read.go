// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// asTable makes the API server answer with the columns of the resource's definition.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

// pageSize is how many objects one request reads.
const pageSize = 500

// Query says which objects are read.
type Query struct {
	// Resource is the plural name.
	Resource string
	// Namespace is that of the objects. Objects of all namespaces are listed if it is empty.
	Namespace string
	// Names are those of the objects. All are read if it is empty.
	Names []string
	// Labels and Fields are selectors.
	Labels, Fields string
}

// reader reads raw answers.
type reader struct {
	api   rest.Interface
	query Query
	table bool
}

func (r *reader) request() *rest.Request {
	accept := "application/json"
	if r.table {
		accept = asTable
	}
	return r.get().SetHeader("Accept", accept)
}

func (r *reader) get() *rest.Request {
	return r.api.Get().NamespaceIfScoped(r.query.Namespace, r.query.Namespace != "").Resource(r.query.Resource)
}

// read calls each with the answers: pages of a list, or single objects. What isn't found is an error in the end.
func (r *reader) read(ctx context.Context, each func(answer []byte) error) error {
	if len(r.query.Names) == 0 {
		return r.pages(ctx, each)
	}
	var failed []error
	for _, name := range r.query.Names {
		answer, err := send(ctx, r.request().Name(name))
		if err == nil {
			err = each(answer)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// now returns a version of the list from which changes can be watched. The version of an object that was read may be too old for
// that.
func (r *reader) now(ctx context.Context) (string, error) {
	answer, err := send(ctx, r.selected(r.get().SetHeader("Accept", "application/json")).Param("limit", "1"))
	if err != nil {
		return "", err
	}
	var page struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return "", fmt.Errorf("read a list of %s: %w", r.query.Resource, err)
	}
	return page.Metadata.ResourceVersion, nil
}

// send returns the answer to a request. Unlike DoRaw, it returns the error that the server has sent.
func send(ctx context.Context, request *rest.Request) ([]byte, error) {
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

func (r *reader) pages(ctx context.Context, each func([]byte) error) error {
	for next := ""; ; {
		request := r.selected(r.request()).Param("limit", strconv.Itoa(pageSize))
		if next != "" {
			request.Param("continue", next)
		}
		answer, err := send(ctx, request)
		if err != nil {
			return err
		}
		if err := each(answer); err != nil {
			return err
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return fmt.Errorf("read a list of %s: %w", r.query.Resource, err)
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

func (r *reader) selected(request *rest.Request) *rest.Request {
	if r.query.Labels != "" {
		request.Param("labelSelector", r.query.Labels)
	}
	if r.query.Fields != "" {
		request.Param("fieldSelector", r.query.Fields)
	}
	return request
}

// watch calls each with the changes since a version of the list, until the server or the context ends the watch.
func (r *reader) watch(ctx context.Context, version string, each func(object []byte) error) error {
	stream, err := r.selected(r.request()).Param("watch", "true").Param("resourceVersion", version).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	for decoder := json.NewDecoder(stream); ; {
		var event metav1.WatchEvent
		if err := decoder.Decode(&event); err != nil {
			if ctx.Err() != nil || errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("watch %s: %w", r.query.Resource, err)
		}
		if event.Type == "ERROR" {
			var status metav1.Status
			if err := json.Unmarshal(event.Object.Raw, &status); err != nil {
				return fmt.Errorf("watch %s: %w", r.query.Resource, err)
			}
			return &apierrors.StatusError{ErrStatus: status}
		}
		if err := each(event.Object.Raw); err != nil {
			return err
		}
	}
}
