// Package ledger explores the protocol of the ledger.
package ledger
