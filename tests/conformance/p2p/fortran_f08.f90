! Rules FO1 to FO5 with the module mpi_f08: two processes, each group of calls.
program fortran_f08
  use mpi_f08
  implicit none
  integer, parameter :: rounds = 20, length = 5000
  integer :: rank, peer, ranks, provided, failures, round, i
  integer, asynchronous :: values(length), others(length)
  type(MPI_Comm) :: comm

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_rank(comm, rank)
  peer = 1 - rank
  failures = 0
  call blocking_calls()
  call requests_in_flight()
  call probes()
  call kept_requests()
  call types()
  call MPI_Comm_free(comm)
  call MPI_Finalize()

contains

  subroutine expect(is_good)
    logical, intent(in) :: is_good
    if (.not. is_good) failures = failures + 1
  end subroutine

  ! The status of a message of the peer.
  subroutine expect_status(status, tag, elements)
    type(MPI_Status), intent(in) :: status
    integer, intent(in) :: tag, elements
    integer :: count
    logical :: cancelled
    call MPI_Get_count(status, MPI_INTEGER, count)
    call MPI_Test_cancelled(status, cancelled)
    call expect(status%MPI_SOURCE == peer .and. status%MPI_TAG == tag .and. count == elements .and. .not. cancelled)
  end subroutine

  subroutine write_values(number)
    integer, intent(in) :: number
    values = [(1000 * number + 7 * i + rank, i = 1, length)]
  end subroutine

  ! The values that the peer has written.
  logical function are_right(number, elements)
    integer, intent(in) :: number, elements
    call MPI_F_sync_reg(others)
    are_right = all(others(1:elements) == [(1000 * number + 7 * i + peer, i = 1, elements)])
  end function

  ! From which `tag` follows: a length of 1, 40 or all elements.
  integer function elements_of(tag)
    integer, intent(in) :: tag
    integer, parameter :: lengths(3) = [1, 40, length]
    elements_of = lengths(mod(tag, 3) + 1)
  end function

  subroutine report(rule)
    character(len=*), intent(in) :: rule
    integer :: worst
    call MPI_Reduce(failures, worst, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
    if (rank == 0 .and. worst == 0) print '(3a)', 'ok ', rule, '_mpi_f08'
    if (rank == 0 .and. worst > 0) print '(3a,i0,a)', 'not ok ', rule, '_mpi_f08: rank 0: wrong data: ', worst, ' failures'
    failures = 0
  end subroutine

  subroutine blocking_calls()
    type(MPI_Status) :: status
    do round = 1, rounds
      call write_values(round)
      if (rank == 0) then
        call MPI_Send(values, elements_of(round), MPI_INTEGER, peer, round, comm)
        call MPI_Ssend(values, elements_of(round), MPI_INTEGER, peer, round, comm)
        call MPI_Recv(others, 1, MPI_INTEGER, peer, 0, comm, MPI_STATUS_IGNORE)
        call expect(are_right(round, 1))
      else
        call MPI_Recv(others, length, MPI_INTEGER, peer, round, comm, status)
        call expect_status(status, round, elements_of(round))
        call expect(are_right(round, elements_of(round)))
        call MPI_Recv(others, length, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, comm, status)
        call expect_status(status, round, elements_of(round))
        call MPI_Send(values, 1, MPI_INTEGER, peer, 0, comm)
      end if
      call MPI_Sendrecv(values, elements_of(round), MPI_INTEGER, peer, 3, others, length, MPI_INTEGER, peer, 3, comm, status)
      call expect_status(status, 3, elements_of(round))
      call expect(are_right(round, elements_of(round)))
      others = values
      call MPI_Sendrecv_replace(others, elements_of(round), MPI_INTEGER, peer, 4, MPI_ANY_SOURCE, 4, comm, status)
      call expect_status(status, 4, elements_of(round))
      call expect(are_right(round, elements_of(round)))
      call MPI_Recv(others, length, MPI_INTEGER, MPI_PROC_NULL, 4, comm, status)
      call expect(status%MPI_SOURCE == MPI_PROC_NULL .and. status%MPI_TAG == MPI_ANY_TAG)
    end do
    call report('FO1')
  end subroutine

  subroutine requests_in_flight()
    integer, parameter :: many = 6
    integer, asynchronous :: sent(many), got(many)
    type(MPI_Request) :: requests(2 * many)
    type(MPI_Status) :: statuses(2 * many), status
    integer :: indices(2 * many), index, outcount, left
    logical :: flag
    do round = 1, rounds
      got = -1
      do i = 1, many
        sent(i) = 100 * round + 10 * i + rank
        call MPI_Irecv(got(i), 1, MPI_INTEGER, peer, i, comm, requests(i))
      end do
      do i = many, 1, -1
        if (mod(i, 2) == 0) call MPI_Isend(sent(i), 1, MPI_INTEGER, peer, i, comm, requests(many + i))
        if (mod(i, 2) == 1) call MPI_Issend(sent(i), 1, MPI_INTEGER, peer, i, comm, requests(many + i))
      end do
      select case (mod(round, 6))
      case (0)
        call MPI_Waitall(2 * many, requests, statuses)
        do i = 1, many
          call expect_status(statuses(i), i, 1)
        end do
      case (1)
        call MPI_Waitall(2 * many, requests, MPI_STATUSES_IGNORE)
      case (2)
        do left = 1, 2 * many
          call MPI_Waitany(2 * many, requests, index, status)  ! MPICH 4 counts from 0
        end do
      case (3)
        left = 2 * many
        do while (left > 0)
          call MPI_Testsome(2 * many, requests, outcount, indices, statuses)
          left = left - outcount
        end do
      case (4)
        flag = .false.
        do while (.not. flag)
          call MPI_Testall(2 * many, requests, flag, statuses)
        end do
        call expect_status(statuses(2), 2, 1)
      case default
        do i = 1, 2 * many
          flag = .false.
          do while (.not. flag)
            call MPI_Request_get_status(requests(i), flag, status)
          end do
          if (i <= many) call expect_status(status, i, 1)
          call MPI_Wait(requests(i), status)
          if (i <= many) call expect_status(status, i, 1)
        end do
      end select
      call MPI_F_sync_reg(got)
      call expect(all(got == [(100 * round + 10 * i + peer, i = 1, many)]))
      do i = 1, 2 * many
        call expect(requests(i) == MPI_REQUEST_NULL)
      end do
    end do
    call report('FO2')
  end subroutine

  subroutine probes()
    type(MPI_Status) :: status
    type(MPI_Message) :: message
    type(MPI_Request) :: request, matched
    integer :: count
    logical :: flag
    do round = 1, rounds
      call write_values(round)
      call MPI_Isend(values, elements_of(round), MPI_INTEGER, peer, round, comm, request)
      flag = .false.
      select case (mod(round, 4))
      case (0)
        call MPI_Probe(peer, MPI_ANY_TAG, comm, status)
        call MPI_Get_count(status, MPI_INTEGER, count)
        call MPI_Recv(others, count, MPI_INTEGER, status%MPI_SOURCE, status%MPI_TAG, comm, MPI_STATUS_IGNORE)
      case (1)
        do while (.not. flag)
          call MPI_Iprobe(MPI_ANY_SOURCE, round, comm, flag, status)
        end do
        call MPI_Recv(others, length, MPI_INTEGER, peer, round, comm, MPI_STATUS_IGNORE)
      case (2)
        call MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, message, status)
        call MPI_Mrecv(others, length, MPI_INTEGER, message, MPI_STATUS_IGNORE)
        call expect(message == MPI_MESSAGE_NULL)
      case (3)
        do while (.not. flag)
          call MPI_Improbe(peer, round, comm, flag, message, status)
        end do
        call MPI_Imrecv(others, length, MPI_INTEGER, message, matched)
        call MPI_Wait(matched, MPI_STATUS_IGNORE)
      end select
      call expect_status(status, round, elements_of(round))
      call MPI_Wait(request, MPI_STATUS_IGNORE)
      call expect(are_right(round, elements_of(round)))
    end do
    call report('FO3')
  end subroutine

  ! Persistent requests, buffered sends, cancels.
  subroutine kept_requests()
    type(MPI_Request) :: requests(3), request
    type(MPI_Status) :: statuses(3), status
    integer :: size, three(3)
    integer, allocatable, asynchronous :: buffer(:)
    logical :: flag
    call MPI_Send_init(values, length, MPI_INTEGER, peer, 1, comm, requests(1))
    call MPI_Ssend_init(values, 3, MPI_INTEGER, peer, 2, comm, requests(2))
    call MPI_Recv_init(others, length, MPI_INTEGER, peer, 1, comm, requests(3))
    do round = 1, rounds
      call write_values(round)
      if (mod(round, 2) == 0) call MPI_Startall(3, requests)
      if (mod(round, 2) == 1) then
        do i = 1, 3
          call MPI_Start(requests(i))
        end do
      end if
      call MPI_Recv(three, 3, MPI_INTEGER, peer, 2, comm, status)
      call expect_status(status, 2, 3)
      call MPI_Waitall(3, requests, statuses)
      call expect_status(statuses(3), 1, length)
      call expect(are_right(round, length))
    end do
    do i = 1, 3
      call expect(requests(i) /= MPI_REQUEST_NULL)
      call MPI_Request_free(requests(i))
    end do
    call MPI_Pack_size(length, MPI_INTEGER, comm, size)
    size = size + MPI_BSEND_OVERHEAD
    allocate (buffer(size / 4 + 1))
    call MPI_Buffer_attach(buffer, size)
    do round = 1, rounds
      call write_values(round)
      call MPI_Bsend(values, length, MPI_INTEGER, peer, 5, comm)
      values = 0
      call MPI_Recv(others, length, MPI_INTEGER, peer, 5, comm, status)
      call expect(are_right(round, length))
      call MPI_Barrier(comm)
    end do
    call detach()
    do round = 1, rounds
      call MPI_Irecv(others, length, MPI_INTEGER, peer, 99, comm, request)
      call MPI_Cancel(request)
      call MPI_Wait(request, status)
      call MPI_Test_cancelled(status, flag)
      call expect(flag)
    end do
    call report('FO4')
  end subroutine

  subroutine detach()
    use, intrinsic :: iso_c_binding, only: c_ptr
    type(c_ptr) :: address
    integer :: size
    call MPI_Buffer_detach(address, size)
  end subroutine

  ! Fortran's own types; types that are freed while their message is in flight, by the program or, for a section of an array, by the
  ! module; MPI_BOTTOM.
  subroutine types()
    double precision :: doubles(10), more_doubles(10)
    complex :: complexes(5), more_complexes(5)
    logical :: truths(4), more_truths(4)
    character(len=20) :: text, more_text
    type(MPI_Request) :: requests(2)
    type(MPI_Datatype) :: stride, whole
    integer(kind=MPI_ADDRESS_KIND) :: address
    do round = 1, rounds
      doubles = [(0.5d0 * i + round + rank, i = 1, 10)]
      call MPI_Sendrecv(doubles, 10, MPI_DOUBLE_PRECISION, peer, 1, more_doubles, 10, MPI_DOUBLE_PRECISION, peer, 1, comm, &
                        MPI_STATUS_IGNORE)
      call expect(all(more_doubles == doubles - rank + peer))
      complexes = [(cmplx(i, round + rank), i = 1, 5)]
      call MPI_Sendrecv(complexes, 5, MPI_COMPLEX, peer, 2, more_complexes, 5, MPI_COMPLEX, peer, 2, comm, MPI_STATUS_IGNORE)
      call expect(all(more_complexes == [(cmplx(i, round + peer), i = 1, 5)]))
      truths = [rank == 0, rank == 1, .true., .false.]
      call MPI_Sendrecv(truths, 4, MPI_LOGICAL, peer, 3, more_truths, 4, MPI_LOGICAL, peer, 3, comm, MPI_STATUS_IGNORE)
      call expect(all(more_truths .eqv. [peer == 0, peer == 1, .true., .false.]))
      write (text, '(a,i0,a,i0)') 'of rank ', rank, ' in ', round
      more_text = ' '
      call MPI_Sendrecv(text, 20, MPI_CHARACTER, peer, 4, more_text, 20, MPI_CHARACTER, peer, 4, comm, MPI_STATUS_IGNORE)
      write (text, '(a,i0,a,i0)') 'of rank ', peer, ' in ', round
      call expect(more_text == text)
      call write_values(round)
      others = 0
      call MPI_Type_vector(length / 2, 1, 2, MPI_INTEGER, stride)
      call MPI_Type_commit(stride)
      call MPI_Irecv(others, 1, stride, peer, 5, comm, requests(1))
      call MPI_Isend(values, 1, stride, peer, 5, comm, requests(2))
      call MPI_Type_free(stride)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      call expect_each_second()
      call MPI_Get_address(values, address)
      call MPI_Type_create_hindexed(1, [length], [address], MPI_INTEGER, whole)
      call MPI_Type_commit(whole)
      call MPI_Isend(MPI_BOTTOM, 1, whole, peer, 6, comm, requests(1))
      call MPI_Type_free(whole)
      call MPI_Recv(others, length, MPI_INTEGER, peer, 6, comm, MPI_STATUS_IGNORE)
      call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
      call expect(are_right(round, length))
      call sections()
    end do
    call report('FO5')
  end subroutine

  ! The module makes a type of its own for a section, and frees it before the message is complete.
  subroutine sections()
    type(MPI_Request) :: requests(2)
    others = 0
    if (MPI_SUBARRAYS_SUPPORTED) then
      call MPI_Irecv(others(1:length:2), length / 2, MPI_INTEGER, peer, 7, comm, requests(1))
      call MPI_Isend(values(1:length:2), length / 2, MPI_INTEGER, peer, 7, comm, requests(2))
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    else  ! the compiler copies a section for the duration of a call
      call MPI_Sendrecv(values(1:length:2), length / 2, MPI_INTEGER, peer, 7, others(1:length:2), length / 2, MPI_INTEGER, peer, 7, &
                        comm, MPI_STATUS_IGNORE)
    end if
    call expect_each_second()
  end subroutine

  subroutine expect_each_second()
    call MPI_F_sync_reg(others)
    do i = 1, length, 2
      call expect(others(i) == 1000 * round + 7 * i + peer .and. others(i + 1) == 0)
    end do
  end subroutine
end program
