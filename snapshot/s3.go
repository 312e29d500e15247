// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// s3 is a bucket of object storage with the S3 protocol.
type s3 struct {
	client *minio.Client
	bucket string
	prefix string // empty, or ends with a slash
}

func openS3(u *url.URL, query url.Values) (*s3, error) {
	endpoint := &url.URL{Scheme: "https", Host: "s3.amazonaws.com"}
	if given := query.Get("endpoint"); given != "" {
		var err error
		if endpoint, err = url.Parse(given); err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
			return nil, fmt.Errorf("parameter endpoint is %q, must be a URL such as https://storage.example:9000", given)
		}
	}
	lookup := minio.BucketLookupAuto
	if given := query.Get("path-style"); given != "" {
		byPath, err := strconv.ParseBool(given)
		if err != nil {
			return nil, fmt.Errorf("parameter path-style is %q, must be true or false", given)
		}
		lookup = minio.BucketLookupDNS
		if byPath {
			lookup = minio.BucketLookupPath
		}
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Secure: endpoint.Scheme == "https", Region: query.Get("region"), BucketLookup: lookup,
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
	})
	if err != nil {
		return nil, err
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	return &s3{client: client, bucket: u.Host, prefix: prefix}, nil
}

func (s *s3) put(ctx context.Context, key string, data io.Reader, size int64) error {
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+key, data, size, minio.PutObjectOptions{ContentType: "application/zstd"})
	return err
}

func (s *s3) putNew(ctx context.Context, key string, data io.Reader, size int64) error {
	o := minio.PutObjectOptions{ContentType: "application/zstd", DisableMultipart: true}
	o.SetMatchETagExcept("*") // which is If-None-Match: *
	_, err := s.client.PutObject(ctx, s.bucket, s.prefix+key, data, size, o)
	switch minio.ToErrorResponse(err).StatusCode {
	case http.StatusNotImplemented: // this storage has no such condition
		if seeker, is := data.(io.Seeker); is {
			if _, err := seeker.Seek(0, io.SeekStart); err != nil {
				return err
			}
			return s.put(ctx, key, data, size)
		}
	case http.StatusPreconditionFailed, http.StatusConflict:
		return errThere
	}
	return err
}

func (s *s3) get(ctx context.Context, key string) (io.ReadCloser, error) {
	object, err := s.client.GetObject(ctx, s.bucket, s.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, notThere(err)
	}
	if _, err := object.Stat(); err != nil {
		return nil, errors.Join(notThere(err), object.Close())
	}
	return object, nil
}

func (s *s3) list(ctx context.Context, prefix string) (objects []object, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a listing that is not read to the end
	at := s.prefix
	if prefix != "" {
		at += prefix + "/"
	}
	for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: at, Recursive: true}) {
		if o.Err != nil {
			return nil, o.Err
		}
		key := strings.TrimPrefix(o.Key, s.prefix)
		if prefix == "" && strings.HasPrefix(key, replicasDir+"/") {
			break // they are many, and come last
		}
		objects = append(objects, object{key: key, size: o.Size, modified: o.LastModified})
	}
	return objects, nil
}

func (s *s3) names(ctx context.Context, prefix string) (names []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at := s.prefix + prefix + "/"
	for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: at}) {
		if o.Err != nil {
			return nil, o.Err
		}
		if name, is := strings.CutSuffix(strings.TrimPrefix(o.Key, at), "/"); is {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *s3) remove(ctx context.Context, key string) error {
	return notThere(s.client.RemoveObject(ctx, s.bucket, s.prefix+key, minio.RemoveObjectOptions{}))
}

func notThere(err error) error {
	if minio.ToErrorResponse(err).StatusCode == http.StatusNotFound && minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return errNotThere
	}
	return err
}
