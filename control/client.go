// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// host is a placeholder in URLs, which need a host.
const host = "http://berth"

// Client sends requests to the Berth server that runs on a data directory. It is safe for concurrent use.
type Client struct {
	where string // the server runs
	most  int64  // maximum size of a decoded response, in bytes
	// remote means that the server isn't trusted.
	remote bool
	http   *http.Client
}

// maxAnswer is the maximum size of a response of a server on this machine. A list of snapshots may be long.
const maxAnswer = 256 << 20

// MaxHeaderBytes is the maximum size of the headers of a response, including those of informational (1xx) ones.
const MaxHeaderBytes = 64 << 10

// ErrNotRunning is returned if no server runs on the data directory.
var ErrNotRunning = errors.New("the Berth server is not running")

// NewClient returns a client of the server that runs on dir, now or later.
func NewClient(dir string) *Client {
	c := NewClientTo("on "+dir+"; start it with: berth up --data-dir "+dir, maxAnswer, func(ctx context.Context) (net.Conn, error) {
		return DialSocket(ctx, filepath.Join(dir, Name))
	})
	c.remote = false
	return c
}

// expectLimit is how long a request with the header "Expect: 100-continue" waits for the server before it sends its body.
const expectLimit = 10 * time.Second

// NewClientTo returns a client of the server to which dial connects. A response may have most bytes. where says where
// the server runs, and how it is started. The server isn't trusted, because a tenant may have taken it over: errors
// from it are made safe to print.
func NewClientTo(where string, most int64, dial func(ctx context.Context) (net.Conn, error)) *Client {
	connect := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
	transport := &http.Transport{DialContext: connect, DisableKeepAlives: true, MaxResponseHeaderBytes: MaxHeaderBytes, ExpectContinueTimeout: expectLimit}
	return &Client{where: where, most: most, remote: true, http: &http.Client{Transport: transport}}
}

// Do sends a request without a body, and decodes the response into out, unless that is nil. An error from the server is
// an [apierrors.APIStatus].
func (c *Client) Do(ctx context.Context, method, path string, out any) error {
	body, err := c.Open(ctx, method, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(body, c.most)).Decode(out); err != nil {
		return fmt.Errorf("read the response of Berth: %w", err)
	}
	return nil
}

// Open sends a request without a body, and returns the body of the response. The caller must close it.
func (c *Client) Open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, host+path, nil)
	if err != nil {
		return nil, fmt.Errorf("send a request to Berth: %w", err)
	}
	resp, err := c.Send(req)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// NewRequest makes a request for [Client.Send].
func NewRequest(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	return http.NewRequestWithContext(ctx, method, host+path, body)
}

// Send sends a request and returns the response, whose body the caller must close. An error from the server is an
// [apierrors.APIStatus].
func (c *Client) Send(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w %s", ErrNotRunning, c.where)
	case err != nil:
		return nil, fmt.Errorf("send a request to Berth: %w", err)
	case resp.StatusCode < http.StatusBadRequest:
		return resp, nil
	}
	defer resp.Body.Close()
	err = refusal(resp)
	if status := (&apierrors.StatusError{}); c.remote && errors.As(err, &status) {
		s := status.ErrStatus
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: s.Code,
			Reason: metav1.StatusReason(Printable(string(s.Reason), maxReason)), Message: Printable(s.Message, maxRefusal),
		}}
	}
	return nil, err
}

// maxRefusal and maxReason limit an error of a server that isn't trusted, in bytes.
const maxRefusal, maxReason = 2 << 10, 64

func refusal(resp *http.Response) error {
	const limit = 64 << 10
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return fmt.Errorf("read the error response of Berth: %w", err)
	}
	var status metav1.Status
	if json.Unmarshal(data, &status) != nil || status.Message == "" {
		return fmt.Errorf("send a request to Berth: %s", Printable(resp.Status, maxRefusal))
	}
	return &apierrors.StatusError{ErrStatus: status}
}
