// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
	"github.com/berth-dev/berth/internal/testservers"
)

// storeTypes are the types of stores that are measured.
func storeTypes() []v1alpha1.StoreType {
	return []v1alpha1.StoreType{v1alpha1.StoreSQLite, v1alpha1.StorePostgreSQL, v1alpha1.StoreMySQL, v1alpha1.StoreEtcd, v1alpha1.StoreNATS, v1alpha1.StoreS3}
}

// openStore starts a server with a store of a type, if it isn't a file. close ends the server.
func openStore(kind v1alpha1.StoreType) (store side.Store, closeStore func(), err error) {
	if kind == v1alpha1.StoreSQLite {
		return side.Store{}, func() {}, nil
	}
	server, err := testservers.Run(string(kind))
	if err != nil {
		return side.Store{}, nil, err
	}
	dsn, err := server.NewDatabase()
	if err != nil {
		server.Stop()
		return side.Store{}, nil, err
	}
	return side.Store{Type: kind, DSN: dsn}, server.Stop, nil
}

// measureStores takes the writes and the lists of a space with each type of store. A type that fails does not keep the others from being
// measured.
func measureStores(ctx context.Context, b *bench, s *sides) error {
	var failed failures
	var errs []error
	for _, kind := range storeTypes() {
		if ctx.Err() != nil {
			break
		}
		if err := b.measureStore(ctx, s, kind, &failed); err != nil {
			errs = append(errs, fmt.Errorf("the store %s: %w", kind, err))
		}
	}
	b.report.Add("store_write_errors", "errors", float64(failed.berth), float64(failed.stock), report.AtMost(0))
	b.noteListed("store_list_5000_s_…")
	return errors.Join(errs...)
}

// measureStore measures one type of store in processes of its own.
func (b *bench) measureStore(ctx context.Context, s *sides, kind v1alpha1.StoreType, failed *failures) (err error) {
	suffix := strings.ToLower(string(kind))
	writes, lists := "store_writes_per_s_"+suffix, "store_list_5000_s_"+suffix
	store, closeStore, err := openStore(kind)
	if err != nil {
		b.report.Miss(writes, "1/s", err)
		b.report.Miss(lists, "s", err)
		return err
	}
	defer closeStore()
	defer func() { err = errors.Join(err, s.endAll()) }()
	berth, stock, err := s.bothStored(ctx, "bench-store", store)
	if err != nil {
		return err
	}
	rates, errored, err := b.compareWrites(ctx, writes, berth, stock)
	failed.berth, failed.stock = failed.berth+errored.berth, failed.stock+errored.stock
	if err != nil {
		return err
	}
	b.add(writes, "1/s", rates, report.Target{})
	if err := b.fillBoth(ctx, berth, stock); err != nil {
		return err
	}
	seconds, err := b.compareLists(ctx, lists, runtime.ContentTypeJSON, berth, stock)
	if err != nil {
		return err
	}
	b.add(lists, "s", seconds, report.Target{})
	return nil
}
