// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

// epochRow is the name of the row with the epoch in which the files were last saved. No file has this name.
const epochRow = ""

// maxRead is how many bytes of files are read, with the epoch.
const maxRead = dbms.MaxFiles + 64

// Epoch returns the number of the takeover by which this process has the database; 0 before it.
func (d *Database) Epoch() int64 { return d.epoch.Load() }

// Expect has Open fail with an ErrFenced if another process has opened the database since the epoch was read.
func (d *Database) Expect(epoch int64) { d.expected = &epoch }

// SavedFiles returns the saved files. The transaction is one of Begin, or reads only. It fails if they are too large.
func (d *Database) SavedFiles(ctx context.Context, tx *sql.Tx) (dbms.Files, error) {
	files, size := dbms.Files{Data: map[string][]byte{}}, 0
	// Somebody else may have written the table.
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT SUBSTRING(name, 1, 1000), SUBSTRING(data, 1, %d) FROM berth_files", maxRead+1))
	if err != nil {
		return dbms.Files{}, err
	}
	for rows.Next() {
		var name string
		var data []byte
		err := rows.Scan(&name, &data)
		if size += len(name) + len(data); err == nil && (size > maxRead || len(files.Data) == dbms.MaxFileCount) {
			err = fmt.Errorf("%w: the files of the space have more than %d bytes, or are more than %d", sqlite.ErrDamaged, dbms.MaxFiles, dbms.MaxFileCount)
		}
		if err != nil {
			return dbms.Files{}, errors.Join(err, rows.Close())
		}
		files.Data[name] = data
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return dbms.Files{}, err
	}
	if epoch, saved := files.Data[epochRow]; saved {
		delete(files.Data, epochRow)
		if files.Epoch, err = strconv.ParseInt(string(epoch), 10, 64); err != nil { // whose text may be long
			return dbms.Files{}, fmt.Errorf("%w: the epoch of the files of the space is not a number", sqlite.ErrDamaged)
		}
	}
	return files, nil
}

// SaveFiles replaces the saved files, if they differ. The transaction is one of Begin. It fails if they are too large.
func (d *Database) SaveFiles(ctx context.Context, tx *sql.Tx, data map[string][]byte) error {
	if err := dbms.CheckSize(data); err != nil {
		return err
	}
	saved, err := d.SavedFiles(ctx, tx)
	if err != nil || saved.Epoch > 0 && maps.EqualFunc(saved.Data, data, bytes.Equal) {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DELETE FROM berth_files"); err != nil {
		return err
	}
	insert := d.Adapt("INSERT INTO berth_files (name, data) VALUES (?, ?)")
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if _, err := tx.ExecContext(ctx, insert, name, notNil(data[name])); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, insert, epochRow, strconv.AppendInt(nil, d.epoch.Load(), 10))
	return err
}

// notNil returns an empty file instead of none, which the column can't have.
func notNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// ReadFiles returns the saved files, and the epoch of the database. It takes nothing over, and needs OpenToReadFiles. It returns zeros if no
// process has opened the database for the space yet.
func (d *Database) ReadFiles(ctx context.Context) (files dbms.Files, epoch int64, err error) {
	tx, err := d.readers.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return dbms.Files{}, 0, err
	}
	defer func() { _ = tx.Rollback() }() // it has written nothing
	exists := func(table string) (bool, error) {
		var n int
		err := tx.QueryRowContext(ctx, d.Adapt(d.dialect.HasTable), table).Scan(&n)
		return n > 0, err
	}
	if has, err := exists("berth_owner"); err != nil || !has {
		return dbms.Files{}, 0, err
	}
	if has, err := owned(ctx, tx, d.owner); err != nil || !has {
		return dbms.Files{}, 0, err
	}
	if epoch, err = readEpoch(tx.QueryRowContext(ctx, d.statement.epoch)); err != nil {
		return dbms.Files{}, 0, err
	}
	if has, err := exists("berth_files"); err != nil || !has { // of a version before
		return dbms.Files{}, epoch, err
	}
	files, err = d.SavedFiles(ctx, tx)
	return files, epoch, err
}

// OpenToReadFiles opens the connections for ReadFiles.
func (d *Database) OpenToReadFiles(ctx context.Context) error { return d.openReaders(ctx) }

// CheckEpoch fails with an ErrFenced if another process has opened the database.
func (d *Database) CheckEpoch(ctx context.Context) error {
	epoch, err := readEpoch(d.readers.DB.QueryRowContext(ctx, d.statement.epoch))
	if err != nil {
		return err
	}
	return d.checkEpoch(epoch)
}
