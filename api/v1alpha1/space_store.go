// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Store is where a space's objects are stored.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="(!has(self.type) || self.type == 'SQLite') != has(self.secretName)",message="secretName is needed for a store in a database server, and not allowed for SQLite"
type Store struct {
	// type is SQLite for a file in the data directory of the platform, or the type of the database server. MySQL is also for
	// MariaDB, and S3 is for object storage. It can't be changed. With Etcd, NATS, and S3, the data directory has a cache of the
	// store, too. Defaults to SQLite.
	// +optional
	// +default="SQLite"
	Type StoreType `json:"type,omitempty"`
	// secretName is the name of a Secret in the namespace of the platform, with the keys dsn and optionally ca.crt, and for Etcd,
	// NATS, and S3 also tls.crt and tls.key. The Secret must have the label berth.dev/space with the name of the space as its value.
	// The database, the prefix of keys in etcd or in a bucket, or the stream in NATS must be one of its own for the space. A change
	// takes effect at the next start of the space.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	SecretName string `json:"secretName,omitempty"`
}

// StoreType is a type of store.
//
// +kubebuilder:validation:Enum=SQLite;PostgreSQL;MySQL;Etcd;NATS;S3
type StoreType string

// Types of stores.
const (
	StoreSQLite     StoreType = "SQLite"
	StorePostgreSQL StoreType = "PostgreSQL"
	StoreMySQL      StoreType = "MySQL"
	StoreEtcd       StoreType = "Etcd"
	StoreNATS       StoreType = "NATS"
	StoreS3         StoreType = "S3"
)

// InServer reports whether the store is in a database server.
func (s *Store) InServer() bool { return s.Type != "" && s.Type != StoreSQLite }
