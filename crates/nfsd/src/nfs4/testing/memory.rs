//! File systems for one test, which behave like memory except in what the test is about.

/// Within an `impl FileSystem`: takes the methods that every file system needs, and those that make files, from the
/// field `memory`.
macro_rules! as_memory {
    () => {
        fn root(&self) -> $crate::FileId {
            self.memory.root()
        }

        fn id(&self) -> u64 {
            self.memory.id()
        }

        fn attributes(
            &self,
            caller: $crate::Caller,
            file: $crate::FileId,
        ) -> rpcrdma_env::BoxFuture<'_, Result<rpcrdma_nfs::attr::Attributes, $crate::Fault>> {
            self.memory.attributes(caller, file)
        }

        fn lookup(
            &self,
            caller: $crate::Caller,
            directory: $crate::FileId,
            name: bytes::Bytes,
        ) -> rpcrdma_env::BoxFuture<'_, $crate::Told<$crate::Found>> {
            self.memory.lookup(caller, directory, name)
        }

        fn read(
            &self,
            via: $crate::Via,
            offset: u64,
            count: usize,
            buffer: rpcrdma_env::Buffer,
        ) -> rpcrdma_env::BoxFuture<'_, $crate::Told<$crate::ReadData>> {
            self.memory.read(via, offset, count, buffer)
        }

        fn list(
            &self,
            caller: $crate::Caller,
            directory: $crate::FileId,
            cookie: u64,
            verifier: [u8; 8],
            budget: $crate::ListingBudget,
        ) -> rpcrdma_env::BoxFuture<'_, $crate::Told<$crate::Listing>> {
            self.memory.list(caller, directory, cookie, verifier, budget)
        }

        fn make(
            &self,
            caller: $crate::Caller,
            directory: $crate::FileId,
            name: bytes::Bytes,
            new: $crate::New,
        ) -> rpcrdma_env::BoxFuture<'_, $crate::Changed<$crate::Made>> {
            self.memory.make(caller, directory, name, new)
        }
    };
}

pub(in crate::nfs4) use as_memory;
